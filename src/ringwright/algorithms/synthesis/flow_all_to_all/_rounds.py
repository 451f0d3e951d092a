"""When which chunk goes over which arc, where its path is given: arcs send what waits at them, several chunks a message.

An idle arc takes the chunks that have waited longest, of equally old ones those with the longest journey left (or these first,
however old). The event engine serves in that order by itself; for the other the order is declared.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.algorithms.arcs_in_use import ArcsInUse

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ringwright.algorithms.networks import ArcNetwork

Path = tuple[int, ...]


@dataclass
class SentMessages:
    """Messages in the order in which they start: arc, step, start and end (ps), and (chunk, arcs done before) of each chunk."""

    arc: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    chunks: list[list[tuple[int, int]]] = field(default_factory=list)

    @property
    def makespan(self) -> int:
        """When the last message has arrived, in ps."""
        return max(self.end, default=0)


class ChunkRelay:
    """One run: chunks with their paths and bytes over a network.

    ``times`` (float64, one a hop) says how often the bytes of a message pass there, where an arc stands for many.
    """

    def __init__(
        self,
        net: ArcNetwork,
        paths: Sequence[Path],
        sizes: Sequence[int],
        merge: int,
        times: np.ndarray,
        *,
        farthest: bool,
    ) -> None:
        self.use = ArcsInUse(net, times)
        count = len(self.use.hops)
        self.paths, self.sizes, self.merge, self.farthest = paths, sizes, merge, farthest
        self.queues: list[list[tuple[int, int, int, int]]] = [[] for _ in range(count)]
        self.due = [-1] * count
        self.events: list[tuple[int, int]] = []  # time, arc or arcs + message
        self.awake: dict[int, None] = {}
        self.arrived = -1
        self.left = [0] * count  # bytes that are to go over each arc still
        for path, size in zip(paths, sizes, strict=True):
            for arc in path:
                self.left[arc] += size
        self.sent = SentMessages()

    def run(self) -> SentMessages:
        """Return the messages."""
        for chunk, path in enumerate(self.paths):
            if path:
                self._wait(chunk, 0, 0)
        self._serve(0)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, number = heapq.heappop(self.events)
                if number < len(self.due):
                    self.due[number] = -1
                    self.awake[number] = None
                else:
                    self._arrive(number - len(self.due), now)
            self._serve(now)
        return self.sent

    def _wait(self, chunk: int, done: int, now: int) -> None:
        """Put a chunk into the queue of the next arc of its path."""
        path = self.paths[chunk]
        arc, left = path[done], len(path) - done
        key = (-left, now) if self.farthest else (now, -left)
        heapq.heappush(self.queues[arc], (*key, chunk, done))
        if self.due[arc] < 0:
            self.awake[arc] = None

    def _arrive(self, message: int, now: int) -> None:
        self.arrived = max(self.arrived, self.sent.step[message])
        for chunk, done in self.sent.chunks[message]:
            if done + 1 < len(self.paths[chunk]):
                self._wait(chunk, done + 1, now)

    def _serve(self, now: int) -> None:
        for arc in sorted(self.awake, key=lambda each: (-self.left[each], self.queues[each][:1], each)):
            queue = self.queues[arc]
            if queue and self.use.idle_from(arc) <= now:
                count = min(self.merge, len(queue))
                self._send(arc, [heapq.heappop(queue)[2:] for _ in range(count)], now)
            if queue:
                self.due[arc] = max(self.use.idle_from(arc), now + 1)
                heapq.heappush(self.events, (self.due[arc], arc))
        self.awake.clear()

    def _send(self, arc: int, chosen: list[tuple[int, int]], now: int) -> None:
        """Put a message on the arc, as the event engine will."""
        size = sum(self.sizes[chunk] for chunk, _ in chosen)
        self.left[arc] -= size
        step = self.use.step(arc, self.arrived)
        tail = self.use.passes(arc, size, now, step)
        sent = self.sent
        heapq.heappush(self.events, (tail, len(self.due) + len(sent.arc)))
        sent.arc.append(arc)
        sent.step.append(step)
        sent.start.append(now)
        sent.end.append(tail)
        sent.chunks.append(chosen)
