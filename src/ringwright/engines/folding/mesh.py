"""The symmetry that a program declares: turning digits of the ranks, and with them digits of the slots.

Ranks are numbers in a mixed radix; turning one digit by ``step`` (modulo its size) maps ranks to ranks. Blocks that run
over all values of that digit map onto themselves if their chunks turn along. All turns together form a group without
fixed ranks, so every move has exactly ``order`` images, and so has every place (rank, slot).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

from ringwright.engines.folding.families import turning
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from ringwright.engines.folding.families import BlockFamily
    from ringwright.engines.folding.patterns import IndexPattern
    from ringwright.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Axis:
    """A digit of the rank, turned by multiples of ``step``."""

    weight: int
    size: int
    step: int = 1

    @property
    def order(self) -> int:
        """How many turns there are, the one that changes nothing included."""
        return self.size // self.step


@dataclass(frozen=True, slots=True)
class SlotDigit:
    """A digit of the slots of one set that turns by ``turn`` when the rank turns once along ``axis``."""

    home: int
    weight: int
    size: int
    axis: int
    turn: int


def rank_digits(families: Sequence[BlockFamily]) -> list[Axis]:
    """Return the digits of the rank over which every block runs; raise DeclinedError where there are none."""
    used = [set(turning(family).values()) for family in families]
    digits = sorted(set().union(*used))
    for (weight, size), (above, _) in pairwise(digits):
        if above % (weight * size):
            raise DeclinedError("its phases see the ranks as different meshes")
    axes = [Axis(weight, size) for weight, size in digits if all((weight, size) in each for each in used)]
    if not axes:
        raise DeclinedError("no step is the same for all ranks")
    return axes


def candidates(axes: Sequence[Axis], topology: Topology, most: int = 64) -> Iterator[list[Axis]]:
    """Yield the groups to try, the largest first: digits turned by one, by whole rows of the fabric, or not at all."""
    bounds = {math.prod(size for _, size in topology.axes[:axis]) for axis in range(1, len(topology.axes))}
    choices = []
    for axis in axes:
        steps = {bound // axis.weight for bound in bounds if not bound % axis.weight}
        inner = [step for step in steps if 1 < step < axis.size and not axis.size % step]
        choices.append([Axis(axis.weight, axis.size, step) for step in sorted({1, axis.size, *inner})])
    groups = [list(group) for group in product(*choices)]
    groups.sort(key=lambda group: -math.prod(axis.order for axis in group))
    for group in groups[:most]:
        kept = [axis for axis in group if axis.order > 1]
        if kept:
            yield kept


@dataclass(frozen=True)
class SymmetryGroup:
    """A group: its axes, and the digits of the slots that turn with them."""

    axes: list[Axis]
    slots: list[SlotDigit]

    @property
    def order(self) -> int:
        """How many equal parts the program has."""
        return math.prod(axis.order for axis in self.axes)


def mesh(axes: list[Axis], families: Sequence[BlockFamily]) -> SymmetryGroup:
    """Return the group with what it does to slots; raise DeclinedError where blocks contradict each other."""
    digit_of: dict[tuple[int, int, int], SlotDigit] = {}
    for family in families:
        view = View(axes, family)
        for index, home in zip((family.chunk, family.to), family.homes, strict=True):
            for digit in view.slot_digits(index, home).values():
                if digit_of.setdefault((home, digit.weight, digit.size), digit) != digit:
                    raise DeclinedError("chunks turn with the ranks in two ways")
    digits = [digit_of[key] for key in sorted(digit_of)]
    for low, high in pairwise(digits):
        if high.home == low.home and high.weight % (low.weight * low.size):
            raise DeclinedError("chunks of different phases overlap")
    return SymmetryGroup(axes, digits)


class View:
    """A family under a symmetry group: which axes of its range the group turns, and the representatives of its moves."""

    def __init__(self, axes: list[Axis], family: BlockFamily) -> None:
        self.axes, self.family = axes, family
        where = {digit: axis for axis, digit in turning(family).items()}
        self.place = [where[axis.weight, axis.size] for axis in axes]  # axis of the range, per axis of the group
        self.group_axis = {position: number for number, position in enumerate(self.place)}

    def slot_digits(self, index: IndexPattern, home: int) -> dict[int, SlotDigit]:
        """Return the digits of the slots that turn, by their number in the pattern."""
        digits = {}
        for number, part in enumerate(index.parts):
            axis = self.group_axis.get(part.axis)
            if axis is None or not part.runs:
                continue
            turn = part.slope * self.axes[axis].step % part.modulus
            if turn == 0:
                continue
            if turn * self.axes[axis].order % part.modulus or part.weight < 0:
                raise DeclinedError("chunks do not turn as often as ranks")
            digits[number] = SlotDigit(home, part.weight, part.modulus, axis, turn)
        return digits

    def representatives(self) -> np.ndarray:
        """Return the range's indices of one move per orbit, a row each, in program order.

        int64 of shape (orbits, axes of the range).
        """
        import numpy as np

        counts = list(self.family.block.shape)
        for axis, position in zip(self.axes, self.place, strict=True):
            counts[position] = axis.step
        return np.indices(counts, np.int64).reshape(len(counts), math.prod(counts)).T

    def arranged(self, values: np.ndarray) -> np.ndarray:
        """Return a value per move as (orbits in program order, images by the group's elements).

        Of the dtype of ``values`` and shape (orbits, images).
        """
        shape: list[int] = []
        order: list[tuple[int, int]] = []
        for position, count in enumerate(self.family.block.shape):
            number = self.group_axis.get(position)
            if number is not None:
                order.append((number, len(shape)))
                shape += [self.axes[number].order, self.axes[number].step]
            else:
                shape.append(count)
        turned = [at for _, at in sorted(order)]
        still = [at for at in range(len(shape)) if at not in turned]
        images = math.prod(axis.order for axis in self.axes)
        return values.reshape(shape).transpose(still + turned).reshape(-1, images)

    def relative(self, index: IndexPattern, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rank of each representative with its turns taken back, and those turns (a column per axis).

        int64 of shape (orbits,) and (orbits, axes).
        """
        import numpy as np

        ranks = index.at(at)
        turns = np.zeros((len(at), len(self.axes)), np.int64)
        for number, axis in enumerate(self.axes):
            turns[:, number] = ranks // axis.weight % axis.size // axis.step
            ranks = ranks - turns[:, number] * axis.step * axis.weight
        return ranks, turns
