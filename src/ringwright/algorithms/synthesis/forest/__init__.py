"""Forests of trees that use every link as long as they must and no longer.

Idea: for every root, trees that carry its block to all ranks, weighted so that the most loaded link takes the least time: that
    attains the bound of the tightest cut. Data go down in rounds; what goes between two ranks in a round is one message. Two
    optima compete, by throughput with pieces that follow one another and by rounds without any: the size decides.
Cost: T = n max over cuts of (ranks inside / ranks) / (bytes/s that leave it), plus a latency for each arc of the longest
    branch and, in k pieces, (height - 1)/k of the first.
Knobs: pieces (none: the best), how many a block is cut into besides its trees; variant: which optimum (best: the shorter
    time); even: all chunks of one size, as runtimes that read files want them (shares of few parts, which may cost 1 % or
    more; blocks of one size for all-reduce); link_model, whether a link is free during its latency; seed of the lots between
    equal trees; budget of seconds, which only stops the search.
Holds: each root's shares add up to its block, to the element; no resource carries more than the optimum says.
Figure: the cut bound on tori, meshes, hypercubes and DGX boxes (Zhao et al., theorem 1), with trees as high as the diameter.
Source: the optimum is that of Zhao et al.: ForestColl, arXiv 2402.06787; trees by column generation, messages merged: ours.
Declines: all-to-all and what else has no trees; more than 4 million moves that no symmetry of the machine folds.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

import numpy as np

from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.searching import ALPHA_OF, Budget, Deadline, LinkModel, Pieces, told
from ringwright.algorithms.synthesis.forest._choice import NEARLY, PiecedForest, beside, candidates
from ringwright.algorithms.tree_rounds import TreeRounds, cuts, even_cuts, is_listed, of_all_roots, tree_moves
from ringwright.algorithms.tree_windows import windowed
from ringwright.collective import Collective, split
from ringwright.costs.arcs import Arcs, arcs
from ringwright.costs.forests import Forest, evened, hops
from ringwright.costs.lower_bounds import bounds
from ringwright.costs.shared_trees import TreeDemand, forests
from ringwright.costs.tree_pool import MOST_TIMED
from ringwright.costs.tree_search import forest as packed
from ringwright.engines.choose import simulate
from ringwright.engines.machine import PS
from ringwright.errors import DeclinedError
from ringwright.knobs import Seed
from ringwright.program import Program, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringwright.topology import Topology

OPS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce")
FABRICS = ("ring", "full", "switch", "torus:2x3", "mesh:3x3", "dgx-1:1", "dgx-a100:2")
MOST_MOVES, MOST_TRIED = 400_000, 1_000_000  # of one candidate; of all that are run to see which is fastest
MOST_KNOWN = 64
MOST_EVEN, MOST_STEPS = 16, 120  # equal parts of a block; moves over a link, each one or two steps of a thread block
_KNOWN: OrderedDict[tuple[bytes, bytes, int, int], tuple[Forest, ...]] = OrderedDict()  # packed in this process
FOLDED = 4  # listed moves that a block which turns repeat is worth
FAR_OFF = 1.1  # time by rounds over the fastest that was run, from which on a candidate is not
ALIKE = 1.01  # time over what the cuts prove up to which trees that are the same both ways do
SHARED = 1e-3  # part of the time that a closer optimum of free blocks could save at most, at which its search ends
NEVER = 4_000_000
MOST_ROWS = 13_000  # of the linear program by rounds, times roots

MOST_WAITING = 5  # rounds that trees by throughput take beyond the farthest rank, for which trees that wait are sought
GOOD = 1.001  # time over what no forest is faster than, at which nothing more is run
ENOUGH = 1.003  # the same where runs take long; and of the time of rounds, at which more rounds are not tried
MANY_TRIED = 100_000  # moves that were run, from which on they take long


def forest(
    collective: Collective,
    topology: Topology | None = None,
    *,
    pieces: Pieces | None = None,
    variant: Literal["best", "throughput", "rounds"] = "best",
    even: bool = False,
    link_model: LinkModel = "pipelined",
    seed: Seed = 0,
    budget: Budget | None = None,
) -> Program:
    """Return the program of the best forest for a collective on a machine."""
    require_op("forest", collective, OPS)
    require_commutative("forest", collective)
    if collective.p == 1:
        return nothing("forest", collective)
    search = ForestQuestion(collective, _machine(collective, topology), variant, seed, Deadline(budget), even=even)
    chosen = search.best(pieces, blocking=link_model == "blocking")
    return told(
        search.program(chosen),
        algorithm="rounds" if chosen.forests[0].by_rounds else "throughput",
        trees=max(len(each.roots) for each in chosen.forests),
        height=max(each.height for each in chosen.forests),
        stopped=search.deadline.stopped,
    )


def _machine(collective: Collective, topology: Topology | None) -> Topology:
    """Return the machine as it is at the start; without one, ranks that are joined pair by pair."""
    if topology is None:
        from ringwright.wiring import Dimension, lattice

        return lattice("full", [Dimension("full", collective.p, 1e9, 1e-6, "rank")])
    return topology.at(0.0) if topology.faults else topology


class ForestQuestion:
    """One collective on one machine: its blocks, the phases that trees spread or collect in, and the forests that serve them."""

    def __init__(
        self,
        collective: Collective,
        topology: Topology,
        variant: str,
        seed: int,
        deadline: Deadline,
        *,
        turning: bool = True,
        even: bool = False,
    ) -> None:
        self.collective, self.variant, self.seed, self.deadline = collective, variant, seed, deadline
        self.machine = topology
        self.is_rooted = collective.op in ("broadcast", "reduce")
        p, n = collective.p, collective.size_bytes
        if self.is_rooted:
            self.blocks = np.array([n], np.int64)
            weight = np.zeros(p)
            weight[collective.root] = max(n, 1)
        else:
            adds = collective.op == "all-reduce"
            self.blocks = split(n, p, collective.unit_bytes) if adds else np.resize(collective.block_bytes, p)
            weight = np.maximum(self.blocks, max(1, int(self.blocks.max()) >> 20)).astype(float)
        uneven = self.is_rooted or np.ptp(weight) > collective.unit_bytes
        if not uneven:
            weight[:] = weight.max()
        self.arcs, self.weight = arcs(topology, collective.group, turning=turning and not uneven), weight
        turns = self.arcs.symmetry
        # Where turns take every rank to every other one, equal blocks are best: so is the mean over the turns of any others.
        self.is_free = collective.op == "all-reduce" and not even and (turns is None or len(turns.bases) > 1)
        self.is_even = even

    def best(self, pieces: int | None, *, blocking: bool) -> PiecedForest:
        """Return what takes the shortest time: by its rounds, then by the engine, as far as a number of moves reaches.

        Of each form (variant, merged or apart, streams) the one that its rounds say is best is run; then, from the fastest on,
        what differs a little from it, as long as that gets faster.
        """
        every = candidates(self._sets(), pieces, self.smallest, blocking=blocking)
        if self.is_even:
            # Windows and ramps go by another numbering of chunks.
            flat = [each for each in every if each.steepness == 1 and not each.window]
            every = [each for each in flat if self._is_writable(each)] or [min(flat, key=self.moves)]
        fits = [each for each in every if self.moves(each) <= MOST_MOVES]
        if not fits:
            return self._least(every)
        alpha, left = ALPHA_OF["blocking" if blocking else "pipelined"], MOST_TRIED
        ran: dict[PiecedForest, int] = {}
        queue = self._by_form(fits)
        while queue:
            one = queue.pop(0)
            if one in ran or self.moves(one) > left or (ran and one.time_s * PS > FAR_OFF * min(ran.values())):
                continue
            if ran and self.deadline.passed():
                break
            left -= self.moves(one)
            ran[one] = simulate(self.program(one), self.machine, alpha=alpha).time_ps
            good = GOOD if MOST_TRIED - left < MANY_TRIED else ENOUGH
            if ran[one] <= good * sum(each.least_s for each in one.forests) * PS:
                break
            if not queue:
                queue = [each for each in beside(min(ran, key=lambda each: ran[each]), fits) if each not in ran]
        return min(ran, key=lambda each: (ran[each], self.moves(each)), default=fits[0])

    def _is_writable(self, one: PiecedForest) -> bool:
        """Whether blocks fall into equal chunks, not too many for the thread blocks of a runtime."""
        elements = int(self.blocks.min()) // self.collective.unit_bytes
        is_even = elements % (one.forests[0].of * one.pieces) == 0
        over_a_link = sum(float(each.rounds.moves.sum(axis=0).max(initial=0.0)) for each in one.forests)
        return is_even and over_a_link * one.pieces <= MOST_STEPS

    def _by_form(self, fits: list[PiecedForest]) -> list[PiecedForest]:
        """Return of each form one with few moves that is about as fast as its fastest: apart and merged in turn."""
        forms: dict[tuple[object, ...], list[PiecedForest]] = {}
        for each in fits:
            if each.steepness == 1 or not each.merged:  # merged ones get their ramp afterwards
                forms.setdefault((*each.form, each.steepness), []).append(each)
        near = ([each for each in form if each.time_s <= form[0].time_s * NEARLY] for form in forms.values())
        best = sorted((min(each, key=self.moves) for each in near), key=lambda each: each.time_s)
        kinds = [[each for each in best if each.merged is merged] for merged in (False, True)]
        return [each for pair in zip_longest(*kinds) for each in pair if each is not None]

    def _least(self, every: list[PiecedForest]) -> PiecedForest:
        """Return the candidate with the fewest moves, where all are many; raise DeclinedError where they are too many."""
        least = min(every, key=lambda each: (self.moves(each), each.time_s))
        if self.moves(least) > NEVER:
            raise DeclinedError(
                f"the forest is {self.moves(least):,} moves, more than {NEVER:,}, and no symmetry of the machine folds it",
                where=f"{self.collective.p:,} ranks",
                remedy="a fabric without faults, or fewer ranks",
            )
        return least

    def moves(self, chosen: PiecedForest) -> int:
        """Return about how many moves a candidate lists: each of a fold counts for as much as some that are listed."""
        trees = sum(len(each.roots) for each in chosen.forests)
        turns = self.arcs.symmetry
        times = 1 if turns is None else turns.order if is_listed(turns) else FOLDED
        return trees * (self.collective.p - 1) * chosen.pieces * times

    def program(self, chosen: PiecedForest) -> Program:
        """Return the program of a candidate."""
        rounds = self.rounds(chosen)
        knobs = {"pieces": chosen.pieces, **({"window": chosen.window} if chosen.window else {})}
        made = Program(
            "forest", self.collective, rounds.layout, rounds.steps, rounds.n_steps, rounds.cost(), knobs=knobs
        )
        return windowed(made, chosen.pieces, chosen.window) if chosen.window else made

    def _sets(self) -> list[tuple[Forest, ...]]:
        """Return forests by throughput, and by rounds; their shares as parts of few, where chunks are to be equal."""
        sets = self._found_sets()
        elements = max(int(self.blocks.min()) // self.collective.unit_bytes, 1)
        return [even for each in sets for even in evened(each, MOST_EVEN, elements)] if self.is_even else sets

    def _found_sets(self) -> list[tuple[Forest, ...]]:
        """Return forests by throughput, and by rounds: as many as the farthest place needs, more while that helps."""
        first = self._phases(0)
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
            sets.append(self._phases(rounds, first))
            if sum(each.time_s for each in sets[-1]) <= least_s * ENOUGH:
                break
        return sets

    @property
    def _roots(self) -> np.ndarray:
        """Roots that the linear program tells apart."""
        return np.flatnonzero(self.weight > 0) if self.arcs.symmetry is None else self.arcs.symmetry.bases

    def _phases(self, rounds: int, first: tuple[Forest, ...] = ()) -> tuple[Forest, ...]:
        """Return a forest for each phase: spreading, collecting, or both; ``first`` are those by throughput."""
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
            return mirrored if mirrored and times[-1] <= times[0] * NEARLY else apart

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

    def smallest(self, forests: Sequence[Forest]) -> int:
        """Return the elements of the smallest block that forests carry: no block is cut into more pieces."""
        of = forests[0].of if self.is_even else 1
        return max(int(self._blocks(forests).min()) // self.collective.unit_bytes // of, 1)

    def _blocks(self, forests: Sequence[Forest]) -> np.ndarray:
        """Return the bytes of the block of each root: where roots share the data out, whole elements, all of them together."""
        if not self.is_free or forests[0].by_rounds:
            return self.blocks
        weight = forests[0].block_bytes
        units, rest = divmod(self.collective.size_bytes, self.collective.unit_bytes)
        ends = np.cumsum(weight[weight > 0])
        whole = np.floor(units * (ends / ends[-1]) + 0.5).astype(np.int64)
        blocks: np.ndarray = np.diff(whole, prepend=0) * self.collective.unit_bytes
        blocks[-1] += rest
        return blocks

    def rounds(self, chosen: PiecedForest) -> TreeRounds:
        """Return the rounds of a candidate."""
        ends = even_cuts(chosen.forests) if self.is_even else cuts(chosen.forests)[0]
        phases = tuple(tree_moves(each, ends) for each in chosen.forests)
        ends = of_all_roots(ends, self.arcs.symmetry)
        labels = tuple("collect" if phase.collects else "spread" for phase in phases)
        blocks = self._blocks(chosen.forests)
        return TreeRounds(
            self.collective,
            phases,
            ends,
            chosen.sizes,
            chosen.streams,
            blocks,
            chosen.merged,
            labels,
            is_cut_evenly=self.is_even,
        )


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
