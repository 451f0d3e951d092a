"""A sequence of instructions as a program: each is a small program, run in all groups that do the instruction at once.

Data are cut by the digits of the levels, those that are scattered first the most significant, so that what a device holds is
mostly one range, and patterns stay patterns; else the slots are listed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.compose import Axis, beside, embed, lift
from ringwright.algorithms.synthesis.p2.language import EMPTY, Hierarchy, Instruction
from ringwright.ground.errors import UsageError
from ringwright.model.collective import PER_RANK, Collective
from ringwright.model.program import Cost, Layout, Program, Step, cut

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.p2.search import Sequenced

Grid = dict[int, tuple[int, int]]  # of each level the first digit and how many
Small = Callable[[str, int, int], Program]  # of an operation, among so many ranks, of so many bytes


@dataclasses.dataclass(frozen=True)
class Phase:
    """An instruction in those of its groups whose root holds the same: ``roots`` are the classes of these, as bits."""

    instruction: Instruction
    held: int
    roots: int
    small: Program


class Composed:
    """The program of a sequence over a hierarchy; ``order`` lists the ranks by their digits, the last level fastest."""

    def __init__(
        self,
        collective: Collective,
        hierarchy: Hierarchy,
        names: Sequence[str],
        order: np.ndarray,
        sequence: Sequenced,
        small: Small,
    ) -> None:
        self.collective, self.hierarchy, self.names = collective, hierarchy, names
        self.order, self.sequence, self.small = order, sequence, small
        self.strides = [math.prod(hierarchy.sizes[at + 1 :]) for at in range(hierarchy.levels)]
        self.is_in_order = bool((order == np.arange(len(order))).all())

    @cached_property
    def phases(self) -> list[list[Phase]]:
        """The instructions in order; UsageError where one may not be done there, or no algorithm does it."""
        return list(self._phases())

    @cached_property
    def total(self) -> int:
        """So many slots that every instruction cuts what it works on between two of them."""
        every = [each for rows in self.phases for each in rows]
        pieces = (each.small.layout.n_chunks / self.hierarchy.share(self._region(each)) for each in every)
        return math.lcm(self.collective.p, *(round(each) for each in pieces))

    def _phases(self) -> Iterator[list[Phase]]:
        state = self.hierarchy.before(self.collective.op)
        for each in self.sequence:
            active = self.hierarchy.active(each, state)
            yield [
                Phase(each, held, who & active, self._small(each, held))
                for held, who in state
                if held != EMPTY and who & active
            ]
            after = self.hierarchy.after(each, state)
            if after is None:
                raise UsageError(f"{each.spelled(self.names)} may not be done there", remedy="another sequence")
            state = after

    def _small(self, instruction: Instruction, held: int) -> Program:
        ranks = math.prod(self.hierarchy.sizes[instruction.above : instruction.level])
        scattered = held & self.hierarchy.every
        if instruction.collective == "all-gather":
            scattered &= ~instruction.span
        size = round(self.collective.size_bytes * self.hierarchy.share(scattered))
        return self.small(instruction.collective, ranks, size)

    def _region(self, phase: Phase) -> int:
        """Return the levels by whose digits the data that a group works on are cut already."""
        gathers = phase.instruction.collective == "all-gather"
        return phase.held & self.hierarchy.every & ~(phase.instruction.span if gathers else 0)

    # ------------------------------------------------------------------------------------------------------------- program
    def program(self, name: str) -> Program:
        """Return the program of all instructions, one after the other."""
        collective = self.collective
        most = [max(rows, key=lambda each: each.small.collective.size_bytes) for rows in self.phases]
        terms = [
            dataclasses.replace(term, level="*".join(self.names[each.instruction.above : each.instruction.level]))
            for each in most
            for term in each.small.cost.terms
        ]
        every = [each for rows in self.phases for each in rows]
        even = collective.size_bytes % (self.total * collective.unit_bytes) == 0
        return Program(
            name,
            collective,
            self._layout(),
            self._steps,
            sum(max(each.small.n_steps for each in rows) for rows in self.phases),
            Cost(
                tuple(terms),
                sum(each.small.cost.sent_bytes * self._groups(each) for each in every),
                sum(each.small.cost.reduced_bytes for each in most),
                is_even=even and all(each.small.cost.is_even for each in every),
            ),
            channels=max(each.small.channels for each in every),
        )

    def _groups(self, phase: Phase) -> int:
        return sum(math.prod(count for _, count in grid.values()) for grid in self._grids(phase))

    def _grids(self, phase: Phase) -> list[Grid]:
        """Return the groups of a phase as grids of the digits that their members share."""
        aside = [level for level in range(self.hierarchy.levels) if not phase.instruction.span >> level & 1]
        classes = [zeros for zeros in range(self.hierarchy.every + 1) if phase.roots >> zeros & 1]
        always = functools.reduce(operator.and_, classes)
        sizes = self.hierarchy.sizes
        if len(classes) == 1 << (self.hierarchy.levels - always.bit_count()):
            return [{level: (0, 1 if always >> level & 1 else sizes[level]) for level in aside}]
        return [
            {level: (0, 1) if zeros >> level & 1 else (1, sizes[level] - 1) for level in aside} for zeros in classes
        ]

    def _layout(self) -> Layout:
        collective = self.collective
        if collective.op not in PER_RANK:
            return cut(collective, self.total)
        parts = self.total // collective.p
        # Slot ranges are ordered by digits and blocks by rank: which rank owns range j is a permutation.
        owner = self.order[np.arange(collective.p).reshape(self.hierarchy.sizes).transpose(self.digits).reshape(-1)]
        chunk = (owner[:, None] * parts + np.arange(parts)).reshape(-1)
        slot = np.arange(self.total)
        mine = slot.reshape(collective.p, parts)[np.argsort(owner)]
        own = tuple((mine[rank], chunk[mine[rank]]) for rank in range(collective.p))
        full = ((slot, chunk),) * collective.p
        before, after = (full, own) if collective.op == "reduce-scatter" else (own, full)
        return dataclasses.replace(cut(collective, parts), template=chunk, before=before, after=after)

    @cached_property
    def digits(self) -> tuple[int, ...]:
        """The levels (from 0) in the order of their digits in a slot's number, the most significant first."""
        levels = range(self.hierarchy.levels)
        every = [each for rows in self.phases for each in rows]
        orders: tuple[list[int], ...] = (
            sorted(levels, key=lambda level: (self._cut_at(level, "reduce-scatter"), level)),
            sorted(levels, key=lambda level: (-self._cut_at(level, "all-gather"), level)),
            list(levels),
        )

        def ranges(digits: list[int]) -> int:
            return sum(self._is_range(each, digits) for each in every)

        best = max(orders, key=ranges)
        return tuple(best)

    def _cut_at(self, level: int, collective: str) -> int:
        """Return the first instruction of a kind that is about a level, by its number; that behind the last without any."""
        mine = (at for at, each in enumerate(self.sequence) if each.collective == collective and each.span >> level & 1)
        return next(mine, len(self.sequence))

    def _is_range(self, phase: Phase, digits: Sequence[int]) -> bool:
        """Return whether what a group works on is one range of slots, and its members' parts follow one another in it."""
        region = self._region(phase)
        ahead = list(digits[: region.bit_count()])
        if sum(1 << level for level in ahead) != region:
            return False
        if phase.instruction.collective not in ("reduce-scatter", "all-gather"):
            return True
        span = list(range(phase.instruction.above, phase.instruction.level))
        return list(digits[len(ahead) : len(ahead) + len(span)]) == span

    @cached_property
    def weights(self) -> dict[int, int]:
        """By level how many slots further its next digit is."""
        weights, weight = {}, self.total
        for level in self.digits:
            weight //= self.hierarchy.sizes[level]
            weights[level] = weight
        return weights

    # --------------------------------------------------------------------------------------------------------------- steps
    def _steps(self) -> Iterator[Step]:
        for rows in self.phases:
            yield from beside(*(steps for each in rows for steps in self._lifted(each)))

    def _lifted(self, phase: Phase) -> Iterator[Iterator[Step]]:
        """Yield the steps of a phase, for each grid of its groups, or group by group where slots are listed."""
        for grid in self._grids(phase):
            if self._is_range(phase, self.digits):
                steps = self._as_pattern(phase, grid)
                yield steps if self.is_in_order else embed(steps, self.order)
            else:
                yield from self._listed(phase, grid)

    def _as_pattern(self, phase: Phase, grid: Grid) -> Iterator[Step]:
        region = self._region(phase)
        steps = {level: (self.strides[level], self.weights[level] * (region >> level & 1)) for level in grid}
        axes: list[Axis] = [(count, *steps[level]) for level, (_, count) in grid.items() if count > 1]
        return lift(
            phase.small.steps(),
            self.strides[phase.instruction.level - 1],
            round(self.total * self.hierarchy.share(region)) // phase.small.layout.n_chunks,
            axes,
            phase.instruction.spelled(self.names),
            at=tuple(sum(start * steps[level][column] for level, (start, _) in grid.items()) for column in (0, 1)),
        )

    def _listed(self, phase: Phase, grid: Grid) -> Iterator[Iterator[Step]]:
        region, instruction, levels = self._region(phase), phase.instruction, self.hierarchy.levels
        inside = list(range(instruction.above, instruction.level))
        sizes = self.hierarchy.sizes
        slots = np.arange(self.total).reshape([*(sizes[level] for level in self.digits), -1])
        slots = slots.transpose([*np.argsort(self.digits).tolist(), levels])
        weight = round(self.total * self.hierarchy.share(region)) // phase.small.layout.n_chunks
        members = np.arange(math.prod(sizes[level] for level in inside)) * self.strides[instruction.level - 1]
        for shared in product(*(range(start, start + count) for start, count in grid.values())):
            digit = dict(zip(grid, shared, strict=True))
            mine = slots[tuple(digit[level] if region >> level & 1 else slice(None) for level in range(levels))]
            left = [level for level in range(levels) if not region >> level & 1]
            front = [left.index(level) for level in inside]
            mine = np.moveaxis(mine, front, range(len(front))).reshape(-1)
            ranks = self.order[members + sum(self.strides[level] * at for level, at in digit.items())]
            steps = lift(phase.small.steps(), 1, weight, (), instruction.spelled(self.names))
            yield embed(steps, ranks, mine)
