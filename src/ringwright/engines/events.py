"""The event engine: every message on its way, resources served first come, first served.

A message enters a resource when its first byte arrives (cut-through), waits until the resource is free, and holds it for
its bytes at the resource's pace. It has arrived when its last byte has, which the slowest resource of its way decides.
Adders take a message whole. Equal times are served in the order of the program. ``native`` has a compiled twin with the
same results to the picosecond; this file is its definition.

Left out: packets, congestion control and buffers (a waiting message delays nobody upstream), host memory copies.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from ringwright.engines.machine import FOREVER
from ringwright.engines.result import Run
from ringwright.errors import InfeasibleError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.flat import Flat
    from ringwright.engines.machine import Machine

LEFT_OUT = ("packets and congestion control", "switch buffers and back-pressure", "memory copies within a rank")


def run(flat: Flat, machine: Machine, *, native: bool = True) -> Run:
    """Run a program laid out on a machine; raise InfeasibleError where a message can never arrive."""
    from ringwright.engines import loops

    simulate = loops.events if native else simulate_events
    start, end = simulate(flat, machine)
    n = flat.n_messages
    stuck = int((end[:n] >= FOREVER).sum())
    if stuck:
        report_stuck(flat, machine, end)
    return Run(start[:n], end[:n], int(end[:n].max(initial=0)), flat.n_hops, "events", LEFT_OUT)


def report_stuck(flat: Flat, machine: Machine, end: np.ndarray) -> None:
    """Raise InfeasibleError that names the first message without an end."""
    import numpy as np

    late = np.flatnonzero(end[: flat.n_messages] >= FOREVER)
    first = int(late[0])
    top = machine.topology
    raise InfeasibleError(
        f"{len(late)} of {flat.n_messages} messages never arrive",
        where=f"first: step {flat.step[first]}, {top.label(int(flat.src[first]))} to {top.label(int(flat.dst[first]))}",
        remedy="end the fault (until 2s), or choose an algorithm that avoids the dead link",
    )


def simulate_events(flat: Flat, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of every message and join, int64 ps; what can never end has FOREVER."""
    import numpy as np

    n = len(flat.waits)
    hop_starts, hops = flat.hop_starts.tolist() + [len(flat.hops)] * (n - flat.n_messages), flat.hops.tolist()
    next_starts, nexts, waits = flat.next_starts.tolist(), flat.nexts.tolist(), flat.waits.tolist()
    sizes = flat.size_bytes.tolist() + [0] * (n - flat.n_messages)
    delay = flat.delay.tolist() + [0] * (n - flat.n_messages)
    whole, links = machine.whole.tolist(), Paces(machine)
    free = [0] * machine.n
    ready, tail = [0] * n, [0] * n
    start, end = [FOREVER] * n, [FOREVER] * n
    at = list(hop_starts[:n])
    queue: list[tuple[int, int]] = []
    done = [message for message in range(n) if not waits[message]]

    def release(message: int) -> None:
        """Send a message that waits for nothing any more on its way, or end it where it has none."""
        time = ready[message] + delay[message]
        start[message] = tail[message] = time
        if hop_starts[message] == hop_starts[message + 1]:
            finish(message, time)
        else:
            heapq.heappush(queue, (time, message))

    def finish(message: int, time: int) -> None:
        end[message] = time
        for follower in nexts[next_starts[message] : next_starts[message + 1]]:
            ready[follower] = max(ready[follower], time)
            waits[follower] -= 1
            if not waits[follower]:
                done.append(follower)

    while True:
        while done:
            release(done.pop())
        if not queue:
            break
        time, message = heapq.heappop(queue)
        hop = hops[at[message]]
        begin = max(time, free[hop])
        if at[message] == hop_starts[message]:
            start[message] = begin
        stop, latency = links.end(hop, begin, sizes[message]), links.latency(hop, begin)
        if stop >= FOREVER:
            continue  # the link is dead for good, and so is all behind this message
        free[hop] = stop + latency if machine.holds_latency else stop
        tail[message] = max(stop, tail[message]) + latency
        at[message] += 1
        if at[message] == hop_starts[message + 1]:
            finish(message, tail[message])
        else:
            entry = tail[message] if whole[hops[at[message]]] else begin + latency
            heapq.heappush(queue, (entry, message))
    return np.array(start, np.int64), np.array(end, np.int64)


class Paces:
    """How long bytes take on each resource, whose pace and latency faults may change."""

    def __init__(self, machine: Machine) -> None:
        self._pace: list[float] = machine.pace.tolist()
        self._changes: dict[int, list[tuple[int, float]]] = {}
        for resource, time, pace in machine.changes:
            self._changes.setdefault(resource, []).append((time, pace))
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
        pace = self._pace[resource]
        changes = self._changes.get(resource)
        if changes is None:
            return FOREVER if math.isinf(pace) else begin + math.ceil(size_bytes * pace)
        now: int = begin
        left = float(size_bytes)
        for time, following in changes:
            if time > now:
                if not math.isinf(pace):
                    needed = math.ceil(left * pace)
                    if now + needed <= time:
                        return now + needed
                    left -= (time - now) / pace
                now = time
            pace = following
        return FOREVER if math.isinf(pace) else now + math.ceil(left * pace)
