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

from ringwright.engines.families import Family, padded
from ringwright.engines.mesh import turning
from ringwright.program import Affine

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ringwright.program import Digit


def refine(families: Sequence[Family]) -> list[Family]:
    """Return the families with axes cut where others of them have a boundary between digits, as far as that goes."""
    digits = {digit for family in families for digit in turning(family).values()}
    bounds = sorted({bound for weight, size in digits for bound in (weight, weight * size)})
    return [_refined(family, bounds) for family in families]


def _refined(family: Family, bounds: Sequence[int]) -> Family:
    for axis, (weight, size) in turning(family).items():
        inner = [bound for bound in bounds if weight < bound < weight * size]
        chain = [weight, *inner, weight * size]
        if inner and not any(high % low for low, high in pairwise(chain)) and _is_plain(family, axis):
            return _refined(_cut(family, axis, chain), bounds)
    return family


def _is_plain(family: Family, axis: int) -> bool:
    """Whether ranks and chunks grow with the axis and are not shifted on it, in any block of the family."""
    count = family.block.shape[axis]
    (_, chunk), (_, to) = family.starts
    for index, offsets in ((family.src, None), (family.dst, None), (family.chunk, chunk), (family.to, to)):
        if axis >= len(index.digits):
            continue
        slope, offset, modulus, weight = index.digits[axis]
        shifted = offset % modulus != 0 if offsets is None else bool((offsets[:, axis] % modulus != 0).any())
        still = weight == 0 or modulus == 1
        if not still and (shifted or modulus != count or slope % modulus != 1):
            return False
    return True


def _cut(family: Family, axis: int, chain: Sequence[int]) -> Family:
    """Replace an axis by one for each two neighbours of ``chain``, the slowest first."""
    import numpy as np

    steps = [(low // chain[0], high // low) for low, high in pairwise(chain)][::-1]

    def digits(index: Affine) -> Affine:
        old = padded(index, family)
        slope, _, modulus, weight = old[axis]
        still = weight == 0 or modulus == 1 or slope % modulus == 0
        new: list[Digit] = [(0, 0, 1, 0) if still else (1, 0, size, weight * radix) for radix, size in steps]
        return Affine((*old[:axis], *new, *old[axis + 1 :]), index.base)

    def columns(rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        bases, offsets = rows
        full = np.zeros((len(bases), len(family.block.shape)), np.int64)
        full[:, : offsets.shape[1]] = offsets
        zeros = np.zeros((len(bases), len(steps)), np.int64)
        return np.concatenate((bases[:, None], full[:, :axis], zeros, full[:, axis + 1 :]), axis=1)

    chunk, to = family.starts
    table = np.concatenate((family.table[:, :2], columns(chunk), columns(to)), axis=1)
    shape = (*family.block.shape[:axis], *[size for _, size in steps], *family.block.shape[axis + 1 :])
    rows = array("q", table.astype(np.int64).tobytes())
    block = replace(family.block, shape=shape)
    return Family(block, digits(family.src), digits(family.dst), digits(family.chunk), digits(family.to), rows)
