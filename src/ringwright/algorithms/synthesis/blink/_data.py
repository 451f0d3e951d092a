"""How data run through the trees: chunks one behind the other, of a size that is doubled while that helps and then taken back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.declared_order import in_order
from ringwright.algorithms.tree_moves import TreeMoves, cuts, shares_of, tree_moves
from ringwright.algorithms.tree_rounds import TreeRounds
from ringwright.engines.choose import simulate
from ringwright.engines.flat import gather
from ringwright.engines.machine import machine
from ringwright.model.program import Program

if TYPE_CHECKING:
    from ringwright.bounds.forests import Forest
    from ringwright.engines.machine import Machine
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

FIRST_CHUNK = 64 << 10  # bytes, the smallest that is tried
MOST_MOVES, MOST_CHUNKS = 24_000, 512  # of a program, and of the part of one of its trees
STEPS_BACK = 4  # in which a chunk that was doubled once too often is taken back
GATHERING = ("gather", "scatter")


@dataclass(frozen=True)
class TreesOfData:
    """A collective, its phases as forests, the bytes of each root's block in the order of the roots."""

    collective: Collective
    forests: tuple[Forest, ...]
    blocks: np.ndarray

    @property
    def largest_bytes(self) -> int:
        """The most that one tree carries."""
        one = self.forests[0]
        return max(1, math.ceil(float((one.block_bytes[one.roots] * one.shares).max()) / one.of))

    def pieces(self, chunk_bytes: int) -> int:
        """Return into how many chunks of at most so many bytes the largest part is cut: whole elements, not too many moves."""
        _, parts = cuts(self.forests)
        moves = parts * len(np.unique(self.forests[0].roots)) * (self.collective.p - 1) * len(self.forests)
        most = max(1, min(self.largest_bytes // self.collective.unit_bytes, MOST_MOVES // moves, MOST_CHUNKS))
        return min(most, -(-self.largest_bytes // chunk_bytes))

    def program(self, pieces: int) -> Program:
        """Return the program whose parts are cut into so many chunks."""
        ends, _ = cuts(self.forests)
        if self.collective.op in GATHERING:
            moves = _along_paths(self.forests[0], next(iter(ends.values())))
            ends = dict.fromkeys(range(self.collective.p), next(iter(ends.values())))
            phases: tuple[TreeMoves, ...] = (moves,)
        else:
            phases = tuple(tree_moves(each, ends) for each in self.forests)
        labels = tuple("collect" if each.arcs.reversed else "spread" for each in self.forests)
        rounds = TreeRounds(self.collective, phases, ends, (1,) * pieces, 1, self.blocks, merged=False, labels=labels)
        steps = list(rounds.steps())  # read again and again by whoever orders, times and checks them
        return Program("blink", self.collective, rounds.layout, lambda: steps, len(steps), rounds.cost())

    @property
    def is_paced(self) -> bool:
        """Whether data come down from one root alone, so that links get them in their order; else all ranks begin at once."""
        return not self.forests[0].arcs.reversed and len(np.unique(self.forests[0].roots)) == 1

    def tuned(self, topology: Topology, chunk_bytes: int | None, *, alpha: str) -> TimedProgram:
        """Return the program with the chunks that take least time, or with chunks of so many bytes."""
        known: dict[int, TimedProgram] = {}
        made = machine(topology, alpha)

        def timed(size: int) -> TimedProgram:
            count = self.pieces(size)
            if count not in known:
                program = self.program(count)
                ordered = program if self.is_paced else chunk_by_chunk(program, made)
                known[count] = TimedProgram(simulate(ordered, topology, alpha=alpha).time_ps, count, ordered, program)
            return known[count]

        size = chunk_bytes or tuned_bytes(lambda each: timed(each).time_ps, FIRST_CHUNK, self.largest_bytes)
        return timed(size).simplest(topology, alpha)


@dataclass(frozen=True)
class TimedProgram:
    """A program, its chunks of the largest part, and the picoseconds that it takes in the engine; ``free``: without an order."""

    time_ps: int
    pieces: int
    program: Program
    free: Program

    def simplest(self, topology: Topology, alpha: str) -> TimedProgram:
        """Return it without a declared order where it is as fast."""
        if self.program is self.free:
            return self
        time_ps = simulate(self.free, topology, alpha=alpha).time_ps
        return TimedProgram(time_ps, self.pieces, self.free, self.free) if time_ps <= self.time_ps else self


def chunk_by_chunk(program: Program, made: Machine) -> Program:
    """Return the program with a declared order: no chunk passes an earlier one on a link, as streams that take turns have it.

    Ranks that collect have all their data at once; without an order the first trees would fill the links of the others.
    """
    pieces = gather(program)
    between = int((pieces.src != pieces.dst).sum())
    return in_order(program, made, np.zeros(between, np.int64), np.ones(between, np.int64))


def tuned_bytes(time_of: Callable[[int], int], first: int, most: int) -> int:
    """Return a size of chunks that takes little time: doubled as long as that gets faster, then taken back step by step.

    ``time_of`` says what a size takes, in any unit; sizes are bytes from ``first`` to ``most``.
    """
    best = larger = min(first, most)
    least = last = time_of(best)
    while larger < most:
        larger = min(2 * larger, most)
        last = time_of(larger)
        if last > least:
            break
        best, least = larger, last
    step = max(1, best // STEPS_BACK)
    for size in range(larger - step, 0, -step):
        taken = time_of(size)
        if taken < least:
            best, least = size, taken
        if taken >= last:
            break
        last = taken
    return best


def _along_paths(forest: Forest, points: Sequence[float]) -> TreeMoves:
    """Return the moves of all ranks' blocks between the root and their owners, along the trees of one root."""
    made, collects = forest.arcs, forest.arcs.reversed
    root = int(forest.roots[0])
    stretches = shares_of(forest, [root])[root]
    rows: list[tuple[int, ...]] = []
    for part, (begin, end) in enumerate(pairwise(points)):
        tree = next(number for number, first, last in stretches if first <= (begin + end) / 2 <= last)
        parents = forest.parents[tree].tolist()
        for owner in range(made.p):
            path = []
            rank = owner
            while rank != root:
                path.append(parents[rank])
                rank = int(made.src[parents[rank]])
            for depth, arc in enumerate(path if collects else reversed(path)):
                ends = int(made.src[arc]), int(made.dst[arc])
                rows.append((*(reversed(ends) if collects else ends), owner, part, tree, depth))
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    return TreeMoves(*columns)
