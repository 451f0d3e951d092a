"""Greedy matching of chunks to arcs over time: what ``native`` has a compiled twin of, with the same results to the bit.

Time jumps from event to event: a message has arrived, or an arc is idle again. Then the arcs that may have something to do are
gone through, quick ones first, equals by lot. An idle arc takes of the chunks at its source those that its target has not and
will not have: the oldest there, of equally old ones the rarest (or the rarest of all). It occupies all its resources as the
event engine does. What a target does not want now it never will, so with the oldest first messages leave in the order in which
their data came: the engine, which serves first come, first served, does the same without being told.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.algorithms.arcs_in_use import MOST_PS, ArcsInUse, TimedMessages, most_ps
from ringwright.ground.errors import InfeasibleError
from ringwright.native import expand as native

if TYPE_CHECKING:
    import numpy as np

    from ringwright.algorithms.networks import ArcNetwork

_MASK = (1 << 64) - 1
_NOT, _HERE, _GONE = range(3)
_SEEN = 256  # chunks among which the rarest is looked for


@dataclass(frozen=True)
class Wanted:
    """Chunks: who has each at the start (``root``), who wants it (``target``, -1: all), and ``size_bytes``.

    ``far`` (int32 of shape (p * p,), by target; empty where all want all) counts the arcs that are left. ``yard`` (int32 of shape
    (p,), or empty): no chunk comes into a yard twice. The others are int32, int32 and int64 of shape (chunks,).
    """

    root: np.ndarray
    target: np.ndarray
    size_bytes: np.ndarray
    far: np.ndarray
    yard: np.ndarray


def matched(
    net: ArcNetwork, wanted: Wanted, merge: int, taper: int, seed: int, *, rarest: bool = False
) -> TimedMessages:
    """Return the messages of one greedy run: up to ``merge`` chunks each, fewer towards the end with a ``taper``.

    ``rarest``: the rarest chunks go first, however old. Raises InfeasibleError where times may come to years.
    """
    _fits(net, wanted)
    if native is None:
        return matched_slowly(net, wanted, merge, taper, seed, rarest=rarest)
    arcs = (net.src, net.dst, net.hop_starts, net.hops, net.delay, net.ps_per_byte, net.latency, net.holds)
    chunks = (wanted.root, wanted.target, wanted.size_bytes, wanted.far, wanted.yard)
    return TimedMessages(*native.matched(net.p, *arcs, *chunks, merge, taper, rarest, seed))


def _fits(net: ArcNetwork, wanted: Wanted) -> None:
    """Raise InfeasibleError where picoseconds overflow if every chunk comes to every rank, each time over the longest route."""
    most = most_ps(net, float(wanted.size_bytes.sum()) * net.p, (len(wanted.root) + 1) * net.p)
    if most >= MOST_PS:
        raise InfeasibleError(
            f"the messages of all ranks together may take {most / 1e12:,.3g} s, more than picoseconds can count",
            remedy="a smaller --size; or rates in GiB/s and latencies in us, if they are not meant to be as they are",
        )


def matched_slowly(
    net: ArcNetwork, wanted: Wanted, merge: int, taper: int, seed: int, *, rarest: bool = False
) -> TimedMessages:
    """Return the same by the Python loop."""
    import numpy as np

    loop = _Loop(net, wanted, merge, taper, seed, rarest=rarest)
    loop.run()
    kinds = (np.int32, np.int32, np.int64, np.int64, np.int64, np.int32)
    columns = (loop.arc_of, loop.step_of, loop.start, loop.end, loop.starts, loop.pieces)
    return TimedMessages(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def mixed(value: int) -> int:
    """Return 64 well-mixed bits of a number (splitmix64)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class _Loop:
    def __init__(
        self, net: ArcNetwork, wanted: Wanted, merge: int, taper: int, seed: int, *, rarest: bool = False
    ) -> None:
        self.merge, self.taper, self.rarest, self.seed = merge, taper, rarest, mixed(seed)
        self.src: list[int] = net.src.tolist()
        self.dst: list[int] = net.dst.tolist()
        self.p, self.n_arcs, n_chunks = net.p, len(self.src), len(wanted.root)
        self.use = ArcsInUse(net)
        self.root, self.sizes = wanted.root.tolist(), wanted.size_bytes.tolist()
        self.target: list[int] = wanted.target.tolist()
        self.far: list[list[int]] = wanted.far.reshape(-1, max(net.p, 1)).tolist()
        self.yard: list[int] = wanted.yard.tolist()
        n_yards = max(self.yard, default=-1) + 1
        self.out: list[list[int]] = [[] for _ in range(net.p)]
        for arc, rank in enumerate(self.src):
            self.out[rank].append(arc)
        self.held: list[list[tuple[int, int]]] = [[] for _ in range(net.p)]
        self.missing, self.yard_missing = [n_chunks] * net.p, [n_chunks] * n_yards
        self.taken, self.inside = (
            [[_NOT] * n_chunks for _ in range(net.p)],
            [[False] * n_chunks for _ in range(n_yards)],
        )
        self.copies = [1] * n_chunks
        self.next, self.due, self.batch_of = [0] * self.n_arcs, [-1] * self.n_arcs, [-1] * self.n_arcs
        self.lot = [0] * self.n_arcs
        self.arrived, self.batch, self.draws = -1, 0, 0
        self.awake: list[int] = []
        self.events: list[tuple[int, int]] = []  # time, arc or arcs + message
        self.arc_of: list[int] = []
        self.step_of: list[int] = []
        self.start: list[int] = []
        self.end: list[int] = []
        self.starts, self.pieces = [0], list[int]()
        self._share_out()

    def _share_out(self) -> None:
        """Note how long a chunk takes on each arc, whether it enters a yard, and its part of all that comes in where it does."""
        size = max(self.sizes, default=0)
        into, into_yard = [0.0] * self.p, [0.0] * len(self.yard_missing)
        self.cost: list[int] = []
        self.enters: list[bool] = []
        self.share: list[float] = []
        for arc, (src, dst, hops) in enumerate(zip(self.src, self.dst, self.use.hops, strict=True)):
            slowest = max((self.use.busy(size, resource) for resource in hops), default=0)
            self.cost.append(slowest + self.use.delay[arc] + sum(self.use.latency[resource] for resource in hops))
            self.enters.append(bool(self.yard) and self.yard[src] != self.yard[dst])
            speed = 1.0 / max(1, self.cost[arc])
            into[dst] += speed
            if self.enters[arc]:
                into_yard[self.yard[dst]] += speed
            self.share.append(speed)
        for arc, dst in enumerate(self.dst):
            self.share[arc] /= into_yard[self.yard[dst]] if self.enters[arc] else into[dst]

    def run(self) -> None:
        for chunk, root in enumerate(self.root):
            self.taken[root][chunk] = _HERE
            self.missing[root] -= 1
            if self.yard:
                self.inside[self.yard[root]][chunk] = True
                self.yard_missing[self.yard[root]] -= 1
            self.held[root].append((0, chunk))
        for arc in range(self.n_arcs):
            self._wake(arc)
        self._serve(0)
        while self.events:
            now = self.events[0][0]
            self.batch += 1
            while self.events and self.events[0][0] == now:
                _, number = heapq.heappop(self.events)
                if number < self.n_arcs:
                    self.due[number] = -1
                    self._wake(number)
                else:
                    self._arrive(number - self.n_arcs, now)
            self._serve(now)

    def _wake(self, arc: int) -> None:
        if self.batch_of[arc] == self.batch or self.due[arc] >= 0:
            return
        self.batch_of[arc] = self.batch
        self.lot[arc] = mixed((self.seed + self.draws) & _MASK)
        self.draws += 1
        self.awake.append(arc)

    def _arrive(self, message: int, now: int) -> None:
        rank = self.dst[self.arc_of[message]]
        self.held[rank] += [(now, chunk) for chunk in self.pieces[self.starts[message] : self.starts[message + 1]]]
        self.arrived = max(self.arrived, self.step_of[message])
        for arc in self.out[rank]:
            self._wake(arc)

    def _serve(self, now: int) -> None:
        self.awake.sort(key=lambda arc: (self.cost[arc], self.lot[arc], arc))
        for arc in self.awake:
            if self.use.idle_from(arc) <= now:
                chosen = self._take(arc)
                if not chosen:
                    continue
                self._send(arc, chosen, now)
            if self._has(arc):
                self.due[arc] = max(self.use.idle_from(arc), now + 1)
                heapq.heappush(self.events, (self.due[arc], arc))
        self.awake.clear()

    def _wants(self, arc: int, chunk: int) -> bool:
        src, dst, target = self.src[arc], self.dst[arc], self.target[chunk]
        if target >= 0:
            far = self.far[target]
            return self.taken[src][chunk] == _HERE and far[dst] < far[src]
        return self.taken[dst][chunk] == _NOT and not (self.enters[arc] and self.inside[self.yard[dst]][chunk])

    def _has(self, arc: int) -> bool:
        """Return whether the source has a chunk that the target wants, having moved on to the oldest one."""
        held, at = self.held[self.src[arc]], self.next[arc]
        while at < len(held) and not self._wants(arc, held[at][1]):
            at += 1
        self.next[arc] = at
        return at < len(held)

    def _take(self, arc: int) -> list[int]:
        """Return the chunks of the next message, and note that the target will have them."""
        chosen: list[int] = []
        held, most = self.held[self.src[arc]], self._limit(arc)
        while len(chosen) < most and self._has(arc):
            best, least, ready = -1, (0, 0), held[self.next[arc]][0]
            for at in range(self.next[arc], min(len(held), self.next[arc] + _SEEN)):
                if held[at][0] != ready and not self.rarest:
                    break
                chunk = held[at][1]
                if not self._wants(arc, chunk):
                    continue
                key = self._rarity(arc, chunk), mixed(self.seed ^ (chunk * self.n_arcs + arc))
                if best < 0 or key < least:
                    best, least = chunk, key
            self._mark(arc, best)
            chosen.append(best)
        return chosen

    def _limit(self, arc: int) -> int:
        """Return the chunks of one message: with a taper fewer and fewer, so that all arcs into a rank end at about one time."""
        if not self.taper:
            return self.merge
        dst = self.dst[arc]
        missing = self.yard_missing[self.yard[dst]] if self.enters[arc] else self.missing[dst]
        return min(self.merge, max(1, int(missing * self.share[arc] / self.taper)))

    def _rarity(self, arc: int, chunk: int) -> int:
        """Return what makes a chunk urgent, the least first: few copies, or a long journey that is left."""
        target = self.target[chunk]
        return -self.far[target][self.src[arc]] if target >= 0 else self.copies[chunk]

    def _mark(self, arc: int, chunk: int) -> None:
        dst = self.dst[arc]
        if self.target[chunk] >= 0:
            self.taken[self.src[arc]][chunk] = _GONE
        self.taken[dst][chunk] = _HERE
        self.copies[chunk] += 1
        self.missing[dst] -= 1
        if self.enters[arc]:
            self.inside[self.yard[dst]][chunk] = True
            self.yard_missing[self.yard[dst]] -= 1

    def _send(self, arc: int, chosen: list[int], now: int) -> None:
        """Put a message on the arc, as the event engine will."""
        step = self.use.step(arc, self.arrived)
        tail = self.use.passes(arc, sum(self.sizes[chunk] for chunk in chosen), now, step)
        heapq.heappush(self.events, (tail, self.n_arcs + len(self.arc_of)))
        self.arc_of.append(arc)
        self.step_of.append(step)
        self.start.append(now)
        self.end.append(tail)
        self.pieces += chosen
        self.starts.append(len(self.pieces))
