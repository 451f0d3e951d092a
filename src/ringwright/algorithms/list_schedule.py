"""List scheduling: an idle arc takes the most urgent of the moves that are ready there; going back in time says what is urgent.

Engines serve first come, first served. Where many trees share links, what is ready first is seldom what others wait for: leaves
of trees have all their data at once. Here every move of every piece has an *urgency*, and a link serves the most urgent first;
several that are ready go as one message of up to ``merge_bytes``. Urgencies come from a run backwards in time: when each move
must be done there is how much others depend on it. A run forwards at these gives new times, and so back and forth. ``native``
has a compiled twin of the loop, with the same results to the bit.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.arcs_in_use import ArcsInUse, TimedMessages
from ringwright.native import expand as native

if TYPE_CHECKING:
    from ringwright.algorithms.networks import ArcNetwork


@dataclass(frozen=True, eq=False)
class PieceMoves:
    """The moves of one piece: the arc of each, and which wait for which.

    ``arc`` and ``waits`` (how many it waits for) are int32 of shape (moves,); ``next_starts`` (int64) cuts ``nexts`` (int32),
    those that wait for it.
    """

    arc: np.ndarray
    next_starts: np.ndarray
    nexts: np.ndarray
    waits: np.ndarray

    def turned_round(self) -> PieceMoves:
        """Return the same moves backwards: each waits for those that waited for it."""
        count = np.diff(self.next_starts)
        before = np.repeat(np.arange(len(self.arc), dtype=np.int32), count)
        order = np.argsort(self.nexts, kind="stable")
        starts = np.searchsorted(self.nexts[order], np.arange(len(self.arc) + 1)).astype(np.int64)
        return PieceMoves(self.arc, starts, before[order], count.astype(np.int32))


def listed(
    net: ArcNetwork, moves: PieceMoves, size_bytes: np.ndarray, urgency: np.ndarray, merge_bytes: int
) -> TimedMessages:
    """Return the messages of one run; its ``pieces`` are moves, numbered piece by piece.

    ``size_bytes`` and ``urgency``, the least first, are int64 of shape (pieces * moves,).
    """
    if native is None:
        return listed_slowly(net, moves, size_bytes, urgency, merge_bytes)
    arcs = (net.src, net.dst, net.hop_starts, net.hops, net.delay, net.ps_per_byte, net.latency, net.holds)
    order = (moves.arc, moves.next_starts, moves.nexts, moves.waits)
    return TimedMessages(*native.listed(net.p, *arcs, *order, size_bytes, urgency, merge_bytes))


def listed_slowly(
    net: ArcNetwork, moves: PieceMoves, size_bytes: np.ndarray, urgency: np.ndarray, merge_bytes: int
) -> TimedMessages:
    """Return the same by the Python loop."""
    loop = _Listing(net, moves, size_bytes, urgency, merge_bytes)
    loop.run()
    kinds = (np.int32, np.int32, np.int64, np.int64, np.int64, np.int32)
    columns = (loop.arc_of, loop.step_of, loop.start, loop.end, loop.starts, loop.pieces)
    return TimedMessages(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def back_and_forth(
    net: ArcNetwork, moves: PieceMoves, size_bytes: np.ndarray, urgency: np.ndarray, merge_bytes: int, times: int
) -> TimedMessages:
    """Return the shortest of several runs, after each but the last of which one backwards says what is urgent."""
    back_net, back = net.turned_round(), moves.turned_round()
    best = run = listed(net, moves, size_bytes, urgency, merge_bytes)
    for _ in range(times - 1):
        backwards = listed(back_net, back, size_bytes, _latest_first(run), merge_bytes)
        run = listed(net, moves, size_bytes, _latest_first(backwards), merge_bytes)
        best = min(best, run, key=lambda each: each.makespan)
    return best


def _latest_first(run: TimedMessages) -> np.ndarray:
    """Return an urgency for the other direction: what has arrived last is the most urgent. int64 of shape (pieces * moves,)."""
    urgency = np.empty(len(run.pieces), np.int64)
    urgency[run.pieces] = np.repeat(-run.end, np.diff(run.starts))
    return urgency


class _Listing:
    def __init__(
        self, net: ArcNetwork, moves: PieceMoves, size_bytes: np.ndarray, urgency: np.ndarray, merge_bytes: int
    ) -> None:
        self.use, self.merge_bytes = ArcsInUse(net), merge_bytes
        self.arc: list[int] = moves.arc.tolist()
        starts, nexts = moves.next_starts.tolist(), moves.nexts.tolist()
        self.nexts = [nexts[begin:end] for begin, end in itertools.pairwise(starts)]
        self.sizes: list[int] = size_bytes.tolist()
        self.urgency: list[int] = urgency.tolist()
        self.waits: list[int] = moves.waits.tolist() * (len(self.sizes) // len(self.arc))
        self.n_arcs = len(net.src)
        self.queues: list[list[tuple[int, int]]] = [[] for _ in range(self.n_arcs)]  # urgency, move
        self.due = [-1] * self.n_arcs
        self.awake: set[int] = set()
        self.events: list[tuple[int, int]] = []  # time, arc or arcs + message
        self.fed = [-1] * len(self.sizes)  # the highest step of what a move waited for
        self.arc_of: list[int] = []
        self.step_of: list[int] = []
        self.start: list[int] = []
        self.end: list[int] = []
        self.starts, self.pieces = [0], list[int]()

    def run(self) -> None:
        for move, count in enumerate(self.waits):
            if not count:
                self._queue(move)
        self._serve(0)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, number = heapq.heappop(self.events)
                if number < self.n_arcs:
                    self.due[number] = -1
                    self.awake.add(number)
                else:
                    self._arrive(number - self.n_arcs)
            self._serve(now)

    def _queue(self, move: int) -> None:
        arc = self.arc[move % len(self.arc)]
        heapq.heappush(self.queues[arc], (self.urgency[move], move))
        if self.due[arc] < 0:
            self.awake.add(arc)

    def _arrive(self, message: int) -> None:
        for piece in self.pieces[self.starts[message] : self.starts[message + 1]]:
            move = piece % len(self.arc)
            for follower in self.nexts[move]:
                after = piece - move + follower
                self.fed[after] = max(self.fed[after], self.step_of[message])
                self.waits[after] -= 1
                if not self.waits[after]:
                    self._queue(after)

    def _serve(self, now: int) -> None:
        for arc in sorted(self.awake, key=lambda each: (self.queues[each][0], each)):
            if self.use.idle_from(arc) <= now:
                self._send(arc, now)
            if self.queues[arc]:
                self.due[arc] = max(self.use.idle_from(arc), now + 1)
                heapq.heappush(self.events, (self.due[arc], arc))
        self.awake.clear()

    def _send(self, arc: int, now: int) -> None:
        """Send the most urgent move, and with it the next ones as long as they fit."""
        ready = self.queues[arc]
        chosen = [heapq.heappop(ready)[1]]
        size = self.sizes[chosen[0]]
        while ready and size + self.sizes[ready[0][1]] <= self.merge_bytes:
            chosen.append(heapq.heappop(ready)[1])
            size += self.sizes[chosen[-1]]
        step = self.use.step(arc, max(self.fed[move] for move in chosen), alone=True)
        tail = self.use.passes(arc, size, now, step)
        heapq.heappush(self.events, (tail, self.n_arcs + len(self.arc_of)))
        self.arc_of.append(arc)
        self.step_of.append(step)
        self.start.append(now)
        self.end.append(tail)
        self.pieces += chosen
        self.starts.append(len(self.pieces))
