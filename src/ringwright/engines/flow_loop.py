"""The loop of the flow engine: messages are fluids that share every resource of their route max-min fair.

A message starts to flow when what it waits for has arrived and its software cost is paid, flows over all resources of its
route at once, and has arrived one latency of the route after its last byte left. Messages with the same route are one class with
one rate. At each instant at which something changes, rates are found anew, but only where the change can be felt: among the
classes connected to it by shared resources that are not slower than whatever began or ended. (Filling up reaches slower
ones first and finds them as before.) ``native`` has a compiled twin with the same results to the picosecond.
"""

from __future__ import annotations

import heapq
import math
from itertools import pairwise
from typing import TYPE_CHECKING

from ringwright.engines.event_loop import ServiceTimes
from ringwright.engines.fairness import UNIT, capacity, fair_rates
from ringwright.engines.machine import FOREVER

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import MessageGraph

SLACK = 1e-3  # ps: rates are rounded down, and a message is not late for that
_HIGH = 1 << 62
CHANGE, DRAINED, START, ARRIVAL = range(4)  # at one instant, in this order


def simulate_flows(flat: MessageGraph, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of every message and join, int64 ps; what can never end has FOREVER.

    Of shape (messages + joins,).
    """
    import numpy as np

    loop = _Loop(flat, machine)
    loop.run()
    return np.array(loop.start, np.int64), np.array(loop.end, np.int64)


def classes(flat: MessageGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the class of each message, and the routes of the classes as (starts, resources).

    int32 of shape (messages,), int64 of shape (classes + 1,), and int32 resources.
    """
    import numpy as np

    nodes = int(max(flat.src.max(initial=0), flat.dst.max(initial=0))) + 1
    key = (flat.src * nodes + flat.dst) * 2 + flat.adds
    _, first, owner = np.unique(key, return_index=True, return_inverse=True)
    if not _same_routes(flat, first[owner]):
        _, first, owner = np.unique(_routes(flat), return_index=True, return_inverse=True)
    lengths = np.diff(flat.hop_starts)[first]
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    inner = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    routes = flat.hops[np.repeat(flat.hop_starts[first], lengths) + inner]
    return owner.astype(np.int32), starts, routes.astype(np.int32)


def _same_routes(flat: MessageGraph, like: np.ndarray) -> bool:
    """Whether each message has the route of the one that it is ``like``."""
    import numpy as np

    lengths = np.diff(flat.hop_starts)
    if not np.array_equal(lengths, lengths[like]):
        return False
    inner = np.arange(len(flat.hops)) - np.repeat(flat.hop_starts[:-1], lengths)
    return np.array_equal(flat.hops, flat.hops[np.repeat(flat.hop_starts[like], lengths) + inner])


def _routes(flat: MessageGraph) -> np.ndarray:
    """Return a number for the route of each message, equal where it is the same. int64 of shape (messages,)."""
    import numpy as np

    numbers: dict[bytes, int] = {}
    bounds, hops = flat.hop_starts.tolist(), np.ascontiguousarray(flat.hops, np.int32)
    return np.array([numbers.setdefault(hops[a:b].tobytes(), len(numbers)) for a, b in pairwise(bounds)], np.int64)


class _Class:
    """Messages with one route: ``served`` bytes each since the class was last empty, as of time ``at``."""

    def __init__(self, route: list[int]) -> None:
        self.route = route
        self.targets: list[tuple[float, int]] = []  # heap of (value of `served` at which it is done, message)
        self.served, self.rate, self.at, self.due = 0.0, 0, 0, FOREVER
        self.is_new = False  # has flows, but no rate yet

    def advance(self, now: int) -> None:
        self.served += self.rate / UNIT * (now - self.at)
        self.at = now

    def plan(self) -> int:
        """Return when the next of its messages is done, FOREVER where none moves."""
        if not self.targets or not self.rate:
            return FOREVER
        wait = math.ceil(max((self.targets[0][0] - self.served) / (self.rate / UNIT) - SLACK, 0.0))
        return self.at + wait if wait < FOREVER else FOREVER


class _Loop:
    def __init__(self, flat: MessageGraph, machine: Machine) -> None:
        n = len(flat.waits)
        owner, starts, resources = classes(flat)
        self.owner: list[int] = owner.tolist()
        bounds, routes = starts.tolist(), resources.tolist()
        self.classes = [_Class(routes[a:b]) for a, b in pairwise(bounds)]
        self.service = ServiceTimes(machine)
        self.users: list[dict[int, None]] = [{} for _ in range(machine.n)]  # ordered sets
        self.capacity = [capacity(ps_per_byte) for ps_per_byte in machine.ps_per_byte.tolist()]
        self.load, self.flows = [0] * machine.n, [0] * machine.n  # rates and number of flows on each resource
        self.floor = _HIGH  # rates below are not touched by what happens at this instant
        self.changes = machine.changes
        self.size: list[int] = flat.size_bytes.tolist()
        self.delay: list[int] = flat.delay.tolist()
        self.nexts, self.next_starts = flat.nexts.tolist(), flat.next_starts.tolist()
        self.waits: list[int] = flat.waits.tolist()
        self.messages = flat.n_messages
        self.ready, self.start, self.end = [0] * n, [FOREVER] * n, [FOREVER] * n
        self.queue = [(time, CHANGE, number) for number, (_, time, _) in enumerate(self.changes)]
        heapq.heapify(self.queue)
        self.touched: dict[int, None] = {}  # resources, an ordered set

    def run(self) -> None:
        for message in [number for number, count in enumerate(self.waits) if not count]:
            self._release(message, 0)
        while self.queue:
            now = self.queue[0][0]
            while self.queue and self.queue[0][0] == now:
                _, kind, number = heapq.heappop(self.queue)
                (self._change, self._drained, self._begin, self._arrive)[kind](number, now)
            self._solve(now)

    def _release(self, message: int, now: int) -> None:
        if message >= self.messages:
            self.start[message] = now
            self._arrive(message, now)
        else:
            heapq.heappush(self.queue, (now + self.delay[message], START, message))

    def _begin(self, message: int, now: int) -> None:
        self.start[message] = now
        number = self.owner[message]
        each = self.classes[number]
        if not self.size[message] or not each.route:
            heapq.heappush(self.queue, (now + self._delay(number, now), ARRIVAL, message))
            return
        if each.targets:
            each.advance(now)
        else:
            each.served, each.rate, each.at, each.is_new = 0.0, 0, now, True
        heapq.heappush(each.targets, (each.served + self.size[message], message))
        for resource in each.route:
            self.users[resource][number] = None
            self.load[resource] += each.rate
            self.flows[resource] += 1
        self._lower(min(self.capacity[resource] // self.flows[resource] for resource in each.route))
        self.touched.update(dict.fromkeys(each.route))

    def _drained(self, number: int, now: int) -> None:
        each = self.classes[number]
        if each.due != now:
            return  # planned before its rate changed
        each.advance(now)
        each.due = FOREVER
        self._lower(each.rate)
        reached = max(each.served, each.targets[0][0])
        while each.targets and each.targets[0][0] <= reached:
            _, message = heapq.heappop(each.targets)
            heapq.heappush(self.queue, (now + self._delay(number, now), ARRIVAL, message))
            for resource in each.route:
                self.load[resource] -= each.rate
                self.flows[resource] -= 1
        if not each.targets:
            for resource in each.route:
                self.users[resource].pop(number, None)
        self.touched.update(dict.fromkeys(each.route))

    def _delay(self, number: int, now: int) -> int:
        """Return the latency of the route, for a message whose last byte leaves now."""
        return sum(self.service.latency(resource, now) for resource in self.classes[number].route)

    def _lower(self, rate: int) -> None:
        self.floor = min(self.floor, rate - (rate >> 28))  # levels within rounding of it count as touched

    def _arrive(self, message: int, now: int) -> None:
        self.end[message] = now
        for follower in self.nexts[self.next_starts[message] : self.next_starts[message + 1]]:
            self.ready[follower] = max(self.ready[follower], now)
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self._release(follower, self.ready[follower])

    def _change(self, number: int, now: int) -> None:
        del now
        resource, _, ps_per_byte = self.changes[number]
        before, self.capacity[resource] = self.capacity[resource], capacity(ps_per_byte)
        self._lower(min(before, self.capacity[resource]) // max(self.flows[resource], 1))
        self.touched[resource] = None

    def _solve(self, now: int) -> None:
        """Find new rates for all classes that a change can reach, one connected part at a time."""
        while self.touched:
            part = self._connected(self.touched.popitem()[0])
            if not part:
                continue
            free: dict[int, int] = {}
            for number in part:
                each = self.classes[number]
                each.advance(now)
                for resource in each.route:
                    free.setdefault(resource, self.capacity[resource] - self.load[resource])
                    free[resource] += each.rate * len(each.targets)
            routes = {number: self.classes[number].route for number in part}
            counts = {number: len(self.classes[number].targets) for number in part}
            for number, rate in fair_rates(routes, counts, free).items():
                self._set_rate(number, rate)
        self.floor = _HIGH

    def _set_rate(self, number: int, rate: int) -> None:
        each = self.classes[number]
        for resource in each.route:
            self.load[resource] += (rate - each.rate) * len(each.targets)
        each.rate, each.is_new = rate, False
        due = each.plan()
        if due != each.due:
            each.due = due
            if due < FOREVER:
                heapq.heappush(self.queue, (due, DRAINED, number))

    def _connected(self, resource: int) -> list[int]:
        """Return the classes that share resources with that one, directly or through others."""
        connected: dict[int, None] = {}
        seen = {resource: None}
        front = [resource]
        while front:
            here = front.pop()
            self.touched.pop(here, None)
            for number in self.users[here]:
                each = self.classes[number]
                if number not in connected and (each.is_new or each.rate >= self.floor):
                    connected[number] = None
                    fresh = [resource for resource in each.route if resource not in seen]
                    seen.update(dict.fromkeys(fresh))
                    front += fresh
        return list(connected)
