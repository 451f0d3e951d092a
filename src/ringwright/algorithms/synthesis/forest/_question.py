"""One collective on one machine: its blocks and arcs, the forests that serve them, and the programs that candidates are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.synthesis.forest._packing import ForestPacking
from ringwright.algorithms.tree_moves import cuts, even_cuts, is_listed, of_all_roots, tree_moves
from ringwright.algorithms.tree_rounds import TreeRounds
from ringwright.algorithms.tree_windows import windowed
from ringwright.bounds.arcs import arcs
from ringwright.bounds.forests import Forest, evened
from ringwright.engines.machine import machine
from ringwright.model.collective import Collective, split
from ringwright.model.program import Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.forest._choice import PiecedForest
    from ringwright.model.topology import Topology

FOLDED = 4  # listed moves that a block which turns repeat is worth
MOST_EVEN, MOST_STEPS = 16, 120  # equal parts of a block; moves over a link, each one or two steps of a thread block


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

    def sets(self) -> list[tuple[Forest, ...]]:
        """Return forests by throughput, and by rounds; their shares as parts of few, where chunks are to be equal."""
        elements = max(int(self.blocks.min()) // self.collective.unit_bytes, 1)
        sets = self.packing().sets()
        return [even for each in sets for even in evened(each, MOST_EVEN, elements)] if self.is_even else sets

    def packing(self, more: int = 0) -> ForestPacking:
        """Return the linear programs of the question; another number, ``more``, may lead to another optimum."""
        return ForestPacking(
            self.collective,
            self.machine,
            self.arcs,
            self.weight,
            self.variant,
            self.seed + more,
            self.deadline,
            is_rooted=self.is_rooted,
            is_free=self.is_free,
        )

    @property
    def lists_moves(self) -> bool:
        """Whether the moves of all roots are listed: turns that repeat them are none, or few."""
        turns = self.arcs.symmetry
        return turns is None or is_listed(turns)

    def is_writable(self, one: PiecedForest) -> bool:
        """Whether blocks fall into equal chunks, not too many for the thread blocks of a runtime."""
        elements = int(self.blocks.min()) // self.collective.unit_bytes
        is_even = elements % (one.forests[0].of * one.pieces) == 0
        over_a_link = sum(float(each.rounds.moves.sum(axis=0).max(initial=0.0)) for each in one.forests)
        return is_even and over_a_link * one.pieces <= MOST_STEPS

    def moves(self, chosen: PiecedForest) -> int:
        """Return about how many moves a candidate lists: each of a fold counts for as much as some that are listed."""
        trees = sum(len(each.roots) for each in chosen.forests)
        turns = self.arcs.symmetry
        times = 1 if turns is None else turns.order if self.lists_moves else FOLDED
        return trees * (self.collective.p - 1) * chosen.pieces * times

    def program(self, chosen: PiecedForest, *, alpha: str = "pipelined") -> Program:
        """Return the program of a candidate; ``alpha``: the model of links that an order of its messages was made for."""
        rounds = self.rounds(chosen)
        knobs = {"pieces": chosen.pieces, **({"window": chosen.window} if chosen.window else {})}
        made = Program(
            "forest", self.collective, rounds.layout, rounds.steps, rounds.n_steps, rounds.cost(), knobs=knobs
        )
        if chosen.listed is not None:
            return chosen.listed.ordered(made, machine(self.machine, alpha))
        return windowed(made, chosen.pieces, chosen.window) if chosen.window else made

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
