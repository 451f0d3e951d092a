"""The order of sends: a list schedule whose times are those of the event engine, in whole picoseconds.

A send is one chunk over one arc, after those that bring it there (in a reduction: after all that add to it). Whenever an arc and
all resources on its way are free, the ready send with the longest way to the end goes, with others that are ready where arcs join
sends to one message: alpha is paid once, and all arrive at its end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.taccl.sketch import Arc


@dataclass(frozen=True)
class Send:
    """Chunk ``chunk`` over arc ``arc`` once all ``after`` (numbers of sends) have come; ``adds``: into what is there."""

    chunk: int
    arc: int
    size_bytes: int
    after: tuple[int, ...] = ()
    adds: bool = False
    own: bool = False  # its source contributed it


@dataclass(frozen=True)
class Joining:
    """How sends over an arc become one message: of those left on it, up to 1 - 1/ratio go at a time (1: each by itself).

    ``remote`` is the ratio of arcs between hosts, ``inside`` that of the others. With ``hold`` none goes over an arc between
    hosts before all that are left on it are ready.
    """

    remote: float = 1.0
    inside: float = 1.0
    hold: bool = False

    def most(self, left: int, *, remote: bool) -> int:
        """Return how many of the sends that an arc has left go at a time."""
        ratio = self.remote if remote else self.inside
        return left if math.isinf(ratio) else max(1, math.floor(left * (1 - 1 / ratio)))


@dataclass(frozen=True)
class JoinedSends:
    """Sends over one arc that travel together."""

    start_ps: int
    end_ps: int
    arc: int
    sends: tuple[int, ...]


@dataclass(frozen=True)
class Timetable:
    """All messages in the order of their starts, and when the last one has arrived."""

    messages: tuple[JoinedSends, ...]
    time_ps: int


@dataclass(frozen=True)
class Passage:
    """What a message does on its arc: its time in all, and from when to when after its start each resource is busy."""

    total_ps: int
    busy: tuple[tuple[int, int, int], ...]  # resource, from, until


def passage(arc: Arc, size_bytes: int, *, blocking: bool) -> Passage:
    """Return how a message passes an arc on which nothing else is: cut through, as in ``engines.event_loop``."""
    head = tail = 0
    busy = []
    for hop in arc.hops:
        stop = head + math.ceil(size_bytes * hop.byte_ps)
        busy.append((hop.resource, head, stop + hop.latency_ps if blocking else stop))
        tail = max(stop, tail) + hop.latency_ps
        head += hop.latency_ps
    return Passage(tail, tuple(busy))


@dataclass
class ArcTimes:
    """Arcs with the passages of messages, each worked out once."""

    arcs: Sequence[Arc]
    blocking: bool
    known: dict[tuple[int, int], Passage] = field(default_factory=dict)

    def passage(self, arc: int, size_bytes: int) -> Passage:
        """Return how a message of that size passes the arc."""
        key = (arc, size_bytes)
        if key not in self.known:
            self.known[key] = passage(self.arcs[arc], size_bytes, blocking=self.blocking)
        return self.known[key]


def tails(sends: Sequence[Send], network: ArcTimes) -> list[int]:
    """Return the longest way from the start of each send to the end of all that follow it, in ps; sends are in order."""
    tail = [0] * len(sends)
    behind = [0] * len(sends)
    for at in range(len(sends) - 1, -1, -1):
        send = sends[at]
        tail[at] = behind[at] + network.passage(send.arc, send.size_bytes).total_ps
        for before in send.after:
            behind[before] = max(behind[before], tail[at])
    return tail


def list_schedule(
    sends: Sequence[Send],
    network: ArcTimes,
    joining: Joining,
    urgency: Sequence[float],
    *,
    own_first: bool = False,
    sizes: Mapping[int, Sequence[int]] | None = None,
) -> Timetable:
    """Return when each send goes; the more urgent first, by the longest way to the end where it is a tail.

    ``own_first``: over remote arcs what their source contributed goes first. ``sizes``: of some arcs how many sends each message
    has, in place of ``joining``.
    """
    return _Listing(sends, network, joining, urgency, own_first, sizes or {}).run()


class _Listing:
    def __init__(
        self,
        sends: Sequence[Send],
        network: ArcTimes,
        joining: Joining,
        urgency: Sequence[float],
        own_first: bool,
        sizes: Mapping[int, Sequence[int]],
    ) -> None:
        self.sends, self.network, self.joining, self.sizes = sends, network, joining, sizes
        arcs = network.arcs
        self.key = [
            (not (own_first and send.own and arcs[send.arc].remote), -urgency[at], at) for at, send in enumerate(sends)
        ]
        self.missing = [len(send.after) for send in sends]
        self.users: list[list[int]] = [[] for _ in sends]
        self.left = [0] * len(arcs)
        for at, send in enumerate(sends):
            self.left[send.arc] += 1
            for before in send.after:
                self.users[before].append(at)
        self.remote = [arc.remote for arc in arcs]
        self.waiting: list[list[tuple[bool, float, int]]] = [[] for _ in arcs]
        self.gone = [0] * len(arcs)  # messages
        self.free: dict[int, int] = {}
        self.written: dict[tuple[int, int], int] = {}  # when the last addition to a chunk at a place ends
        self.queue: list[tuple[int, int, int]] = [(0, 0, at) for at, count in enumerate(self.missing) if not count]
        self.messages: list[JoinedSends] = []
        self.holding = joining.hold

    def run(self) -> Timetable:
        heapq.heapify(self.queue)
        while self.queue:
            now = self.queue[0][0]
            tried: dict[int, None] = {}
            while self.queue and self.queue[0][0] == now:
                _, is_try, number = heapq.heappop(self.queue)
                if not is_try:
                    heapq.heappush(self.waiting[self.sends[number].arc], self.key[number])
                    number = self.sends[number].arc
                tried[number] = None
            for arc in sorted(tried, key=self._urgency):
                self._try(arc, now)
            if not self.queue and any(self.waiting):
                # Arcs that wait for more sends than can come, each for the other: what was planned is given up.
                self.holding, self.sizes = False, {}
                self.queue = [(now, 1, arc) for arc, waiting in enumerate(self.waiting) if waiting]
        messages = tuple(sorted(self.messages, key=lambda each: each.start_ps))
        return Timetable(messages, max((each.end_ps for each in messages), default=0))

    def _urgency(self, arc: int) -> tuple[bool, float, int]:
        return self.waiting[arc][0] if self.waiting[arc] else (True, 0.0, 0)

    def _try(self, arc: int, now: int) -> None:
        waiting = self.waiting[arc]
        if not waiting or (self.holding and self.remote[arc] and len(waiting) < self.left[arc]):
            return
        start = self._start(arc, now)
        if start > now:
            heapq.heappush(self.queue, (start, 1, arc))
            return
        chosen, later = self._chosen(arc, now)
        if not chosen:
            if later is not None:
                heapq.heappush(self.queue, (later, 1, arc))
            return
        self._go(arc, now, chosen)
        if waiting:
            heapq.heappush(self.queue, (max(self._start(arc, now), now + 1), 1, arc))

    def _start(self, arc: int, now: int) -> int:
        """Return when the resources of an arc are next free one after the other."""
        first = self.network.passage(arc, 0)
        return max(now, max((self.free.get(resource, 0) - begin for resource, begin, _ in first.busy), default=0))

    def _chosen(self, arc: int, now: int) -> tuple[list[int], int | None]:
        """Return the sends of the next message, and else when one may go that waits for an addition."""
        waiting = self.waiting[arc]
        planned = self.sizes.get(arc)
        if planned is not None and self.gone[arc] < len(planned):
            most = planned[self.gone[arc]]
            if len(waiting) < min(most, self.left[arc]):
                return [], None
        else:
            most = self.joining.most(self.left[arc], remote=self.remote[arc])
        chosen: list[int] = []
        aside = []
        later: int | None = None
        dst = self.network.arcs[arc].dst
        while waiting and len(chosen) < most:
            key = heapq.heappop(waiting)
            send = self.sends[key[2]]
            until = self.written.get((dst, send.chunk), 0) if send.adds else 0
            if until > now:
                aside.append(key)
                later = until if later is None else min(later, until)
            else:
                chosen.append(key[2])
        for key in aside:
            heapq.heappush(waiting, key)
        return chosen, later

    def _go(self, arc: int, now: int, chosen: list[int]) -> None:
        passing = self.network.passage(arc, sum(self.sends[each].size_bytes for each in chosen))
        end = now + passing.total_ps
        for resource, _, until in passing.busy:
            self.free[resource] = now + until
        self.left[arc] -= len(chosen)
        self.gone[arc] += 1
        self.messages.append(JoinedSends(now, end, arc, tuple(chosen)))
        dst = self.network.arcs[arc].dst
        for each in chosen:
            if self.sends[each].adds:
                self.written[dst, self.sends[each].chunk] = end
            for user in self.users[each]:
                self.missing[user] -= 1
                if not self.missing[user]:
                    heapq.heappush(self.queue, (end, 0, user))
