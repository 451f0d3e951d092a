"""The linear programs behind a question: forests by throughput and by rounds, for its phases, packed once in a process."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from ringwright.bounds.forests import Forest, hops
from ringwright.bounds.lower_bounds import bounds
from ringwright.bounds.shared_trees import forests
from ringwright.bounds.tree_demands import TreeDemand
from ringwright.bounds.tree_pool import MOST_TIMED
from ringwright.bounds.tree_search import forest as packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.algorithms.searching import Deadline
    from ringwright.bounds.arcs import Arcs
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

MOST_KNOWN = 64
_KNOWN: OrderedDict[tuple[bytes, bytes, int, int], tuple[Forest, ...]] = OrderedDict()  # packed in this process
ALIKE = 1.01  # time over what the cuts prove up to which trees that are the same both ways do
SHARED = 1e-3  # part of the time that a closer optimum of free blocks could save at most, at which its search ends
MOST_ROWS = 13_000  # of the linear program by rounds, times roots
MOST_WAITING = 5  # rounds that trees by throughput take beyond the farthest rank, for which trees that wait are sought
CLOSE = 1.003  # time of rounds over what no forest is faster than, at which more rounds are not tried
SIMILAR = 1.002  # times of two optima that are as good as each other


class ForestPacking:
    """The forests of a collective on arcs; ``weight`` are the bytes of each root's block, float64 of shape (places,).

    ``is_rooted``: there is one block, that of the root; ``is_free``: the roots share the data out.
    """

    def __init__(
        self,
        collective: Collective,
        machine: Topology,
        arcs: Arcs,
        weight: np.ndarray,
        variant: str,
        seed: int,
        deadline: Deadline,
        *,
        is_rooted: bool,
        is_free: bool,
    ) -> None:
        self.collective, self.machine, self.arcs, self.weight = collective, machine, arcs, weight
        self.variant, self.seed, self.deadline = variant, seed, deadline
        self.is_rooted, self.is_free = is_rooted, is_free

    def sets(self) -> list[tuple[Forest, ...]]:
        """Return forests by throughput, and by rounds: as many as the farthest place needs, more while that helps."""
        first = self.phases(0)
        sets = [first] if self.variant != "rounds" else []
        if self.variant == "throughput":
            return sets
        least_s = sum(each.least_s for each in first)
        far = max(int(hops(each.arcs, self._roots).max()) for each in first)
        high = max(far, *(each.height for each in first))
        few = self.arcs.p <= MOST_TIMED and high <= far + MOST_WAITING
        waiting = {high, high + 1, high + 2} if few else set[int]()
        for rounds in sorted({far, *waiting}):
            if self.deadline.passed() or (sets and rounds * len(self._roots) * len(self.arcs.rate) > MOST_ROWS):
                break
            sets.append(self.phases(rounds, first))
            if sum(each.time_s for each in sets[-1]) <= least_s * CLOSE:
                break
        return sets

    @property
    def _roots(self) -> np.ndarray:
        """Roots that the linear program tells apart."""
        return np.flatnonzero(self.weight > 0) if self.arcs.symmetry is None else self.arcs.symmetry.bases

    def phases(self, rounds: int, first: tuple[Forest, ...] = ()) -> tuple[Forest, ...]:
        """Return a forest for each phase: spreading, collecting, or both.

        In so many ``rounds``, or by throughput (0); ``first`` are those by throughput.
        """
        op = self.collective.op
        if op in ("all-gather", "broadcast"):
            return (self._packed(self.arcs, rounds, *first),)
        if op in ("reduce-scatter", "reduce"):
            return (self._packed(self.arcs.turned_round(), rounds, *first),)
        if self.is_free and not rounds:
            return self._shared()
        spreading = self._packed(self.arcs, rounds, *first[1:])
        collecting = spreading.mirrored()
        if collecting is None or collecting.time_s > spreading.time_s * (1 + 1e-6):
            collecting = self._packed(self.arcs.turned_round(), rounds, *first[:1])
        return (collecting, spreading)

    def _packed(self, made: Arcs, rounds: int, first: Forest | None = None) -> Forest:
        """Return a forest for blocks of these bytes: one for parts of the largest, which serves all sizes, made larger."""
        largest = float(self.weight.max())
        parts = self.weight / largest
        spreads, collects = ("broadcast", "reduce") if self.is_rooted else ("all-gather", "reduce-scatter")

        def search() -> tuple[Forest, ...]:
            least_s = self._least_s(collects if made.reversed else spreads) / largest
            stop = self.deadline.passed
            return (packed(made, parts, rounds=rounds, seed=self.seed, first=first, proved_s=least_s, must_stop=stop),)

        (one,) = _known((made.digest(), parts.tobytes(), rounds, self.seed), search)
        return _larger(one, largest, self.weight)

    def _shared(self) -> tuple[Forest, ...]:
        """Return forests that collect and spread blocks which the roots share out as is best, in the limit of large data."""
        largest = float(self.weight.max())
        parts = self.weight / largest

        def search() -> tuple[Forest, ...]:
            least_s = self._least_s("all-reduce") / largest
            mirrored = self._mirrored(parts, least_s)
            if mirrored and sum(each.time_s for each in mirrored) <= least_s * ALIKE:
                return mirrored
            demand = TreeDemand((self.arcs.turned_round(), self.arcs), parts, is_free=True)
            apart = forests([demand], seed=self.seed, proved_s=least_s, enough=SHARED, must_stop=self.deadline.passed)[
                0
            ]
            times = [sum(each.time_s for each in two) for two in (apart, mirrored) if two]
            return mirrored if mirrored and times[-1] <= times[0] * SIMILAR else apart

        two = _known((self.arcs.digest(), b"free" + parts.tobytes(), 0, self.seed), search)
        return tuple(_larger(each, largest, each.block_bytes * largest) for each in two)

    def _mirrored(self, parts: np.ndarray, least_s: float) -> tuple[Forest, ...]:
        """Return the best forests that collect and spread along the same trees; none where an arc has no way back.

        Where links are alike both ways nothing is better: with any two forests their mirrors are as good, and so is the mean.
        """
        both = self.arcs.there_and_back()
        if both is None:
            return ()
        demand = TreeDemand((both,), parts, is_free=True)
        stop = self.deadline.passed
        (one,) = forests([demand], seed=self.seed, proved_s=least_s, enough=SHARED, must_stop=stop)[0]
        return both_phases(one, self.arcs)

    def _least_s(self, op: str) -> float:
        """Return what no trees are faster than, by the cuts that the machine suggests: where they reach that they are best."""
        bandwidth = bounds(dataclasses.replace(self.collective, op=op), self.machine, exact=False)
        return max((each.time_s for each in bandwidth if each.kind != "distance"), default=0.0)


def both_phases(one: Forest, arcs: Arcs) -> tuple[Forest, ...]:
    """Return the forests that collect and spread along the trees of a forest on ``arcs`` both ways; none without a way back."""
    spreading = dataclasses.replace(one, arcs=arcs, time_s=one.time_s / 2, least_s=one.least_s / 2)
    collecting = spreading.mirrored()
    return () if collecting is None else (dataclasses.replace(collecting, time_s=one.time_s / 2), spreading)


def _known(key: tuple[bytes, bytes, int, int], search: Callable[[], tuple[Forest, ...]]) -> tuple[Forest, ...]:
    """Return what was packed before in this process; what a budget stopped is not kept."""
    if key in _KNOWN:
        return _KNOWN[key]
    made = search()
    if not any(each.stopped for each in made):
        _KNOWN[key] = made
        if len(_KNOWN) > MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return made


def _larger(one: Forest, times: float, blocks: np.ndarray) -> Forest:
    """Return the forest of blocks so many times as large."""
    return dataclasses.replace(one, block_bytes=blocks, time_s=one.time_s * times, least_s=one.least_s * times)
