"""One order of all instructions that every rank shares, in which each can run when its turn comes.

The order is by the longest distance from a start, then by the longest to an end, as long as messages of a connection are taken
in the order in which they were sent and no more of them are under way than its FIFO holds. Thread blocks that run their
instructions in such an order cannot lock up: there is always one that comes first.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np

from ringwright.algorithms.language.tape import Tape
from ringwright.model.threadblocks.accesses import slots_of


def distances(n: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the longest distance of each of ``n`` from those that nothing comes before. int64 of shape (n,)."""
    by = np.argsort(before, kind="stable")
    starts, nexts = np.searchsorted(before[by], np.arange(n + 1)), after[by]
    left = np.bincount(after, minlength=n)
    distance = np.zeros(n, np.int64)
    front, number = np.flatnonzero(left == 0), 0
    while len(front):
        distance[front] = number
        at, _ = slots_of(starts[front], starts[front + 1] - starts[front])
        reached, times = np.unique(nexts[at], return_counts=True)
        left[reached] -= times
        front, number = reached[left[reached] == 0], number + 1
    return distance


def by_turn(tape: Tape, channel: np.ndarray, depth: int) -> tuple[np.ndarray, list[int]]:
    """Return the order, and the receives that messages sent before theirs held up for ever (none: the order is whole).

    int64 of shape (instructions that could run,).
    """
    n = len(tape)
    senders = np.flatnonzero(tape.then >= 0)
    before = np.concatenate((tape.needs[0], senders))
    after = np.concatenate((tape.needs[1], tape.then[senders]))
    start, end = distances(n, before, after), distances(n, after, before)
    ranked = np.lexsort((np.arange(n), -end, start))
    return _Run(tape, channel, depth, ranked).order(before, after)


class _Run:
    """A run of all instructions, the one of the first turn next, with FIFOs of a depth."""

    def __init__(self, tape: Tape, channel: np.ndarray, depth: int, ranked: np.ndarray) -> None:
        self.depth, self.then, self.ranked = depth, tape.then.tolist(), ranked.tolist()
        self.turn = np.argsort(ranked).tolist()
        p = len(tape.sizes)
        out = np.where(tape.send >= 0, (channel * p + tape.rank) * p + tape.send, -1)
        into = np.where(tape.recv >= 0, (channel * p + tape.recv) * p + tape.rank, -1)
        _, both = np.unique(np.concatenate((out, into, [-1])), return_inverse=True)
        self.out, self.into = both[: len(tape)].tolist(), both[len(tape) : -1].tolist()
        connections = int(both.max()) + 1
        self.fifo: list[deque[int]] = [deque() for _ in range(connections)]  # who receives, in order; number 0 is none
        self.full: list[list[int]] = [[] for _ in range(connections)]  # turns of those that wait for room
        self.early: set[int] = set()  # receives that could run, were theirs the next message

    def order(self, before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Return the order, and who was held up."""
        n = len(self.then)
        by = np.argsort(before, kind="stable")
        starts, nexts = np.searchsorted(before[by], np.arange(n + 1)).tolist(), after[by].tolist()
        left = np.bincount(after, minlength=n).tolist()
        ready = [self.turn[each] for each in np.flatnonzero(np.array(left) == 0).tolist()]
        heapq.heapify(ready)
        done: list[int] = []
        while ready:
            number = self.ranked[heapq.heappop(ready)]
            if not self._may_run(number):
                continue
            done.append(number)
            self._pass(number, ready)
            for follower in nexts[starts[number] : starts[number + 1]]:
                left[follower] -= 1
                if not left[follower]:
                    heapq.heappush(ready, self.turn[follower])
        return np.array(done, np.int64), sorted(self.early)

    def _may_run(self, number: int) -> bool:
        """Return whether its message is the next and there is room for the one it sends; else it waits for that."""
        into, out = self.into[number], self.out[number]
        if into and self.fifo[into][0] != number:
            self.early.add(number)
            return False
        if out and len(self.fifo[out]) >= self.depth:
            heapq.heappush(self.full[out], self.turn[number])
            return False
        return True

    def _pass(self, number: int, ready: list[int]) -> None:
        """Take the message that it receives, and send its own."""
        into, out = self.into[number], self.out[number]
        if into:
            fifo = self.fifo[into]
            fifo.popleft()
            if self.full[into]:
                heapq.heappush(ready, heapq.heappop(self.full[into]))
            if fifo and fifo[0] in self.early:
                self.early.discard(fifo[0])
                heapq.heappush(ready, self.turn[fifo[0]])
        if out:
            self.fifo[out].append(self.then[number])
