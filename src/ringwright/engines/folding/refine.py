"""One mesh for all phases: cut an axis of one family's range where another family sees two digits.

A ring over 8 ranks beside every one of 128 others, and an exchange over the 7 bits of those 128, fold together once the
first family's axis of 128 is seen as 7 axes of 2. An axis may be cut where nothing on it is shifted: there, the value of
the whole is the sum of the values of its digits.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ringwright.engines.folding.families import BlockFamily, turning
from ringwright.engines.folding.patterns import AxisTerm, IndexPattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


def refine(families: Sequence[BlockFamily]) -> list[BlockFamily]:
    """Return the families with axes cut where others of them have a boundary between digits, as far as that goes."""
    digits = {digit for family in families for digit in turning(family).values()}
    bounds = sorted({bound for weight, size in digits for bound in (weight, weight * size)})
    return [_refined(family, bounds) for family in families]


def _refined(family: BlockFamily, bounds: Sequence[int]) -> BlockFamily:
    for axis, (weight, size) in turning(family).items():
        inner = [bound for bound in bounds if weight < bound < weight * size]
        chain = [weight, *inner, weight * size]
        if inner and not any(high % low for low, high in pairwise(chain)) and _is_plain(family, axis):
            return _refined(_cut(family, axis, chain), bounds)
    return family


def _is_plain(family: BlockFamily, axis: int) -> bool:
    """Whether ranks and chunks grow with the axis and are not shifted on it, in any block of the family."""
    import numpy as np

    count = family.block.shape[axis]
    (_, chunk), (_, to) = family.starts
    for index, offsets in ((family.src, None), (family.dst, None), (family.chunk, chunk), (family.to, to)):
        for number in index.on(axis):
            part = index.parts[number]
            shifts = index.offsets[number] if offsets is None else offsets[:, number]
            if part.modulus != count or part.slope % count != 1 or np.any(shifts % count):
                return False
    return True


def _cut(family: BlockFamily, axis: int, chain: Sequence[int]) -> BlockFamily:
    """Replace an axis by one for each two neighbours of ``chain``, the slowest first."""
    import numpy as np

    steps = [(low // chain[0], high // low) for low, high in pairwise(chain)][::-1]

    def split(index: IndexPattern) -> tuple[IndexPattern, list[int]]:
        """Return the pattern over the new axes, and for each of its digits the old one with its offset (-1: none)."""
        parts, origin = [], []
        for number, part in enumerate(index.parts):
            if part.axis != axis:
                parts.append(part._replace(axis=part.axis + (len(steps) - 1) * (part.axis > axis)))
                origin.append(number)
            elif part.runs:
                parts += [AxisTerm(axis + at, 1, size, part.weight * radix) for at, (radix, size) in enumerate(steps)]
                origin += [-1] * len(steps)
            elif part.weight:
                parts.append(AxisTerm(axis, 0, part.modulus, part.weight))
                origin.append(number)
        offsets = tuple(index.offsets[number] if number >= 0 else 0 for number in origin)
        return IndexPattern(tuple(parts), offsets, index.base), origin

    def columns(rows: tuple[np.ndarray, np.ndarray], origin: list[int]) -> np.ndarray:
        bases, offsets = rows
        wide = np.concatenate((offsets, np.zeros((len(bases), 1), np.int64)), axis=1)
        return np.concatenate((bases[:, None], wide[:, origin]), axis=1)

    (src, _), (dst, _), (chunk, from_), (to, into) = (
        split(each) for each in (family.src, family.dst, family.chunk, family.to)
    )
    table = np.concatenate(
        (family.table[:, :2], columns(family.starts[0], from_), columns(family.starts[1], into)), axis=1
    )
    shape = (*family.block.shape[:axis], *[size for _, size in steps], *family.block.shape[axis + 1 :])
    ends = family.block.arrays()[:2]  # as they are: the new axes run over the same moves in the same order
    block = replace(family.block, shape=shape, src=ends[0], dst=ends[1])
    return BlockFamily(block, src, dst, chunk, to, family.homes, array("q", table.astype(np.int64).tobytes()))
