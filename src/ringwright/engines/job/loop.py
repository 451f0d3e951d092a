"""The event loop of jobs, readable: the oracle of its native twin.

At each moment all ends are taken in first; then every queue that something happened to, by number, starts what it may.
Successors of one instance become ready in the order in which they are listed.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from heapq import heappop, heappush

import numpy as np

from ringwright.engines.job.flat import NO_QUEUE, FlatJob, InstanceTimes
from ringwright.engines.job.limits import Limits
from ringwright.engines.job.rates import Rates

_DONE, _LANDED, _FREE = 0, 1, 2  # work is done, a latency is over, a thread that issued is free again


class Loop:
    """One run over a laid-out job."""

    def __init__(self, flat: FlatJob) -> None:
        self.flat = flat
        n, queues = flat.n, len(flat.queues.window)
        self.waits = flat.waits.tolist()
        self.ready_at, self.start_at = [-1] * n, [-1] * n
        self.moved_at, self.end_at = [-1] * n, [-1] * n
        self.order = _orders(flat)
        self.next = [0] * queues  # place of the head of a strict queue
        self.ready: list[list[tuple[int, int, int]]] = [[] for _ in range(queues)]  # heaps, or sorted if not blocking
        self.smallest = _smallest(flat)
        self.inflight, self.flying = [0.0] * queues, [0] * queues
        self.busy_until = [0] * queues  # of the thread that issues
        self.wire: list[deque[int]] = [deque() for _ in range(queues)]  # issued, not yet moving, in the order of issue
        self.landed = bytearray(n)  # whose latency is over
        self.moving = [-1] * queues
        self.heap: list[tuple[int, int, int, int, int]] = []
        self.count = self.arrivals = 0
        self.dirty: list[int] = []  # a heap of queues to look at
        self.marked = bytearray(queues)
        self.rates = Rates(flat, lambda time, instance, version: self._post(time, _DONE, instance, version))
        self.limits = Limits(flat, self._touch)

    def run(self) -> InstanceTimes:
        """Return the times, and how many ends, landings and freed threads there were; -1 marks what never happened."""
        for instance in np.flatnonzero(self.flat.waits == 0).tolist():
            self._ready(instance, 0)
        self._dispatch(0)
        events = 0
        while self.heap:
            now = self.heap[0][0]
            while self.heap and self.heap[0][0] == now:
                _, _, what, instance, version = heappop(self.heap)
                if what != _DONE or version == self.rates.version[instance]:
                    events += 1
                    self._happen(what, instance, now)
            self._dispatch(now)
        ready, start, moved, end = (
            np.array(each, np.int64) for each in (self.ready_at, self.start_at, self.moved_at, self.end_at)
        )
        return InstanceTimes(ready, start, moved, end, events)

    # ------------------------------------------------------------------------------------------------------- happenings
    def _happen(self, what: int, instance: int, now: int) -> None:
        if what == _DONE:
            self._end(instance, now)
        elif what == _LANDED:
            self.landed[instance] = 1
            self._move(int(self.flat.queue[instance]), now)
        else:  # ``instance`` is the queue
            self._touch(instance)

    def _post(self, time: int, what: int, instance: int, version: int = 0) -> None:
        self.count += 1
        heappush(self.heap, (time, self.count, what, instance, version))

    def _touch(self, queue: int) -> None:
        if not self.marked[queue]:
            self.marked[queue] = 1
            heappush(self.dirty, queue)

    def _ready(self, instance: int, now: int) -> None:
        """Everything that it waited for has ended."""
        flat, stack = self.flat, [instance]
        while stack:
            instance = stack.pop()
            self.ready_at[instance] = now
            queue = int(flat.queue[instance])
            if queue == NO_QUEUE:  # control: no time, no place
                self.start_at[instance] = self.moved_at[instance] = self.end_at[instance] = now
                self.limits.give(instance)
                stack += reversed(self._released(instance))
                continue
            self._touch(queue)
            if not flat.queues.strict[queue]:
                self.arrivals += 1
                entry = (int(flat.key[instance]), self.arrivals, instance)
                (heappush if flat.queues.blocking[queue] else insort)(self.ready[queue], entry)
                self.limits.arrive(instance, queue, entry[:2])

    def _released(self, instance: int) -> list[int]:
        flat, released = self.flat, []
        runs = slice(flat.after_start[instance], flat.after_start[instance + 1])
        for first, many in zip(flat.after[runs].tolist(), flat.after_many[runs].tolist(), strict=True):
            for after in range(first, first + many):
                self.waits[after] -= 1
                if self.waits[after] == 0:
                    released.append(after)
        return released

    def _end(self, instance: int, now: int) -> None:
        self.end_at[instance] = now
        queue = int(self.flat.queue[instance])
        self.moving[queue] = -1
        if self.flat.queues.strict[queue]:
            self.rates.end_compute(instance)
            self.limits.tag(instance, -1)
        else:
            self.flying[queue] -= 1
            left = self.inflight[queue] - float(self.flat.size[instance])
            self.inflight[queue] = left if self.flying[queue] else 0.0  # nothing in flight, no rounding left behind
            self.rates.end_wire(instance, now)
            self.limits.finish(instance, queue)
            self._move(queue, now)
        self._touch(queue)
        self.limits.give(instance)
        for after in self._released(instance):
            self._ready(after, now)

    # ---------------------------------------------------------------------------------------------------------- starts
    def _dispatch(self, now: int) -> None:
        while self.dirty:
            queue = heappop(self.dirty)
            self.marked[queue] = 0
            if self.flat.queues.strict[queue]:
                self._next_of_stream(queue, now)
            else:
                self._next_of_communication(queue, now)

    def _next_of_stream(self, queue: int, now: int) -> None:
        order = self.order[queue]
        if self.moving[queue] >= 0 or self.next[queue] >= len(order):
            return
        instance = order[self.next[queue]]
        if self.waits[instance] or not self.limits.take(instance, queue):
            return
        self.next[queue] += 1
        self.moving[queue] = instance
        self.start_at[instance] = self.moved_at[instance] = now
        self.limits.tag(instance, 1)
        self.rates.begin_compute(instance, now)

    def _next_of_communication(self, queue: int, now: int) -> None:
        ready, blocking = self.ready[queue], self.flat.queues.blocking[queue]
        while ready and now >= self.busy_until[queue]:
            at = self._choice(queue)
            if at < 0:
                return
            instance = (heappop(ready) if blocking else ready.pop(at))[2]
            self._issue(instance, queue, now)

    def _choice(self, queue: int) -> int:
        """Return the place of what may start now in the list of what is ready, -1 for nothing."""
        queues, inflight = self.flat.queues, self.inflight[queue]
        window, blocking = float(queues.window[queue]), queues.blocking[queue]
        if not blocking and inflight and inflight + self.smallest[queue] > window:
            return -1
        for at, (_, _, instance) in enumerate(self.ready[queue]):
            size = float(self.flat.size[instance])
            fits = inflight < window if blocking else not inflight or inflight + size <= window
            if fits and self.limits.open(instance, queue) and self.limits.take(instance, queue):
                return at
            if blocking:
                return -1
        return -1

    def _issue(self, instance: int, queue: int, now: int) -> None:
        issue_ps = int(self.flat.queues.issue_ps[queue])
        delay = issue_ps + int(self.flat.latency_ps[instance])
        self.start_at[instance] = now
        self.inflight[queue] += float(self.flat.size[instance])
        self.flying[queue] += 1
        self.limits.start(instance, queue)
        self.wire[queue].append(instance)
        if issue_ps:
            self.busy_until[queue] = now + issue_ps
            self._post(now + issue_ps, _FREE, queue)
        if delay:
            self._post(now + delay, _LANDED, instance)
        else:
            self.landed[instance] = 1
            self._move(queue, now)

    def _move(self, queue: int, now: int) -> None:
        """Put the next issued operation on the wire, where it is free and the latency is over."""
        wire = self.wire[queue]
        if self.moving[queue] < 0 and wire and self.landed[wire[0]]:
            instance = wire.popleft()
            self.moving[queue] = instance
            self.moved_at[instance] = now
            self.rates.begin_wire(instance, now)


def _orders(flat: FlatJob) -> list[list[int]]:
    """Return the instances of each strict queue in the order of their keys."""
    orders: list[list[int]] = [[] for _ in flat.queues.window]
    for instance in np.lexsort((np.arange(flat.n), flat.key)).tolist():
        queue = int(flat.queue[instance])
        if queue != NO_QUEUE and flat.queues.strict[queue]:
            orders[queue].append(instance)
    return orders


def _smallest(flat: FlatJob) -> list[float]:
    """Return the size of the smallest instance of each queue."""
    smallest = np.full(len(flat.queues.window), np.inf)
    queued = flat.queue >= 0
    np.minimum.at(smallest, flat.queue[queued], flat.size[queued])
    return [float(size) for size in smallest]
