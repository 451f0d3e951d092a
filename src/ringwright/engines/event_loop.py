"""The loop of the event engine: every message under way, resources served first come, first served.

A message enters a resource when its first byte arrives (cut-through), waits until the resource is free, and holds it for
its bytes at the resource's rate, and for its latency where the resource ``holds``. It has arrived when its last byte has,
which the slowest resource of its route decides. Reduction units take a message whole. Equal times are served in the order of the
program. ``native`` has a compiled twin with the same results to the picosecond; this file is its definition.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from ringwright.engines.machine import FOREVER

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph


def simulate_events(flat: MessageGraph, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of every message and join, int64 ps; what can never end has FOREVER.

    Of shape (messages + joins,).
    """
    import numpy as np

    loop = _Loop(flat, machine)
    loop.run()
    return np.array(loop.start, np.int64), np.array(loop.end, np.int64)


def served(flat: MessageGraph, machine: Machine, until_ps: int = FOREVER) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return from when to when each hop's resource serves its message, without latency held, and when its last byte is past.

    Each int64 ps of shape (hops,). What is never reached has FOREVER three times, as does what is reached only at ``until_ps``.
    """
    import numpy as np

    loop = _Loop(flat, machine)
    loop.run(until_ps)
    return np.array(loop.begins, np.int64), np.array(loop.stops, np.int64), np.array(loop.leaves, np.int64)


class _Loop:
    def __init__(self, flat: MessageGraph, machine: Machine) -> None:
        n = len(flat.waits)
        joins = n - flat.n_messages
        self.hop_starts: list[int] = flat.hop_starts.tolist() + [len(flat.hops)] * joins
        self.hops: list[int] = flat.hops.tolist()
        self.next_starts, self.nexts = flat.next_starts.tolist(), flat.nexts.tolist()
        self.waits: list[int] = flat.waits.tolist()
        self.sizes: list[int] = flat.size_bytes.tolist()
        self.delay: list[int] = flat.delay.tolist() + [0] * joins
        self.whole: list[bool] = machine.whole.tolist()
        self.holds: list[bool] = machine.holds.tolist()
        self.service, self.forks = ServiceTimes(machine), _forks(flat)
        self.free = [0] * machine.n
        self.ready, self.tail = [0] * n, [0] * n
        self.start, self.end = [FOREVER] * n, [FOREVER] * n
        self.at = self.hop_starts[:n]
        self.begins, self.stops, self.leaves = ([FOREVER] * len(self.hops) for _ in range(3))
        self.queue: list[tuple[int, int]] = []
        self.done = [message for message, count in enumerate(self.waits) if not count]

    def run(self, until_ps: int = FOREVER) -> None:
        while self.done or (self.queue and self.queue[0][0] < until_ps):
            while self.done:
                self._release(self.done.pop())
            if self.queue and self.queue[0][0] < until_ps:
                self._serve(*heapq.heappop(self.queue))

    def _release(self, message: int) -> None:
        """Send a message that waits for nothing any more on its route, or end it where it has none."""
        self._enter(message, self.ready[message] + self.delay[message], self.ready[message] + self.delay[message])

    def _enter(self, message: int, head: int, tail: int) -> None:
        """Let a message into its first resource; without one it ends when its last byte is there."""
        self.start[message] = self.tail[message] = tail
        at = self.hop_starts[message]
        if at == self.hop_starts[message + 1]:
            self._finish(message, tail)
        else:
            heapq.heappush(self.queue, (tail if self.whole[self.hops[at]] else head, message))

    def _finish(self, message: int, time: int) -> None:
        self.end[message] = time
        for follower in self.nexts[self.next_starts[message] : self.next_starts[message + 1]]:
            self.ready[follower] = max(self.ready[follower], time)
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self.done.append(follower)

    def _serve(self, time: int, message: int) -> None:
        at = self.at[message]
        resource = self.hops[at]
        begin = max(time, self.free[resource])
        if at == self.hop_starts[message]:
            self.start[message] = begin
        stop, latency = self.service.end(resource, begin, self.sizes[message]), self.service.latency(resource, begin)
        if stop >= FOREVER:
            return  # the link is dead for good, and so is all behind this message
        self.begins[at], self.stops[at] = begin, stop
        self.free[resource] = stop + latency if self.holds[resource] else stop
        head, tail = begin + latency, max(stop, self.tail[message]) + latency
        self.tail[message] = self.leaves[at] = tail
        for child in self.forks.get((message, at - self.hop_starts[message]), ()):
            self._enter(child, head, tail)
        self.at[message] = at = at + 1
        if at == self.hop_starts[message + 1]:
            self._finish(message, tail)
        else:
            heapq.heappush(self.queue, (tail if self.whole[self.hops[at]] else head, message))


def _forks(flat: MessageGraph) -> dict[tuple[int, int], list[int]]:
    """Return which messages branch off behind which hop of which message."""
    forks: dict[tuple[int, int], list[int]] = {}
    if flat.branches is not None:
        columns = (flat.branches.parent, flat.branches.hop, flat.branches.child)
        for parent, hop, child in zip(*(column.tolist() for column in columns), strict=True):
            forks.setdefault((parent, hop), []).append(child)
    return forks


class ServiceTimes:
    """How long bytes take on each resource, whose rate and latency faults may change."""

    def __init__(self, machine: Machine) -> None:
        self._ps_per_byte: list[float] = machine.ps_per_byte.tolist()
        self._changes: dict[int, list[tuple[int, float]]] = {}
        for resource, time, ps_per_byte in machine.changes:
            self._changes.setdefault(resource, []).append((time, ps_per_byte))
        self._latency: list[int] = machine.latency.tolist()
        self._delays: dict[int, list[tuple[int, int]]] = {}
        for resource, time, latency in machine.delays:
            self._delays.setdefault(resource, []).append((time, latency))

    def latency(self, resource: int, begin: int) -> int:
        """Return the latency for bytes that enter at ``begin``."""
        now = self._latency[resource]
        for time, latency in self._delays.get(resource, ()):
            if time <= begin:
                now = latency
        return now

    def end(self, resource: int, begin: int, size_bytes: int) -> int:
        """Return when the last of ``size_bytes`` has left, if the first starts at ``begin``; FOREVER, if never."""
        ps_per_byte = self._ps_per_byte[resource]
        changes = self._changes.get(resource)
        if changes is None:
            return FOREVER if math.isinf(ps_per_byte) else begin + math.ceil(size_bytes * ps_per_byte)
        now: int = begin
        left = float(size_bytes)
        for time, following in changes:
            if time > now:
                if not math.isinf(ps_per_byte):
                    needed = math.ceil(left * ps_per_byte)
                    if now + needed <= time:
                        return now + needed
                    left -= (time - now) / ps_per_byte
                now = time
            ps_per_byte = following
        return FOREVER if math.isinf(ps_per_byte) else now + math.ceil(left * ps_per_byte)
