"""Parallelism matrices: all ways in which axes of parallelism lie on the levels of a machine.

Row i of a matrix is an axis, column l a level (outermost first): entry (i, l) says how many parts axis i is cut into at level
l. Rows multiply to the axes' sizes, columns to the levels'. At each level the first axis is the outermost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

Matrix = tuple[tuple[int, ...], ...]  # a row an axis


def matrices(axes: Sequence[int], levels: Sequence[int]) -> Iterator[Matrix]:
    """Yield every parallelism matrix; UsageError where the axes do not fill the machine."""
    if not axes or min((*axes, *levels), default=0) < 1 or math.prod(axes) != math.prod(levels):
        raise UsageError(
            f"axes of {_by(axes)} do not fill levels of {_by(levels)}",
            remedy=f"axes whose product is {math.prod(levels)}",
        )
    yield from (tuple(zip(*columns, strict=True)) for columns in _columns(tuple(axes), tuple(levels)))


def _columns(left: tuple[int, ...], levels: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not levels:
        yield ()
        return
    for column in _cut(left, levels[0]):
        rest = tuple(size // part for size, part in zip(left, column, strict=True))
        yield from ((column, *further) for further in _columns(rest, levels[1:]))


def _cut(left: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """Yield the factors, one of each of ``left``, whose product is ``size``."""
    if not left:
        if size == 1:
            yield ()
        return
    common = math.gcd(left[0], size)
    for part in (part for part in range(1, common + 1) if common % part == 0):
        yield from ((part, *further) for further in _cut(left[1:], size // part))


def devices(matrix: Matrix) -> np.ndarray:
    """Return the device at every point of the axes' grid, int64 of shape (axis 0, axis 1, ...), levels outermost first."""
    import numpy as np

    rows, columns = len(matrix), len(matrix[0])
    by_level = [(row, level) for level in range(columns) for row in range(rows)]
    sizes = [matrix[row][level] for row, level in by_level]
    grid = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)
    by_axis = [by_level.index((row, level)) for row in range(rows) for level in range(columns)]
    ordered: np.ndarray = grid.transpose(by_axis).reshape([math.prod(row) for row in matrix])
    return ordered


def reduced_levels(matrix: Matrix, over: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return (size, level) of the hierarchy of a reduction over some axes: their parts above 1, outermost level first."""
    return tuple(
        (matrix[row][level], level) for level in range(len(matrix[0])) for row in sorted(over) if matrix[row][level] > 1
    )


def groups(matrix: Matrix, over: Sequence[int]) -> np.ndarray:
    """Return the devices of each group of a reduction over some axes, int64 of shape (groups, members).

    Members are in the order of the hierarchy that ``reduced_levels`` names, the last level fastest.
    """
    import numpy as np

    rows, columns = len(matrix), len(matrix[0])
    by_level = [(row, level) for level in range(columns) for row in range(rows)]
    grid = np.arange(math.prod(map(math.prod, matrix)), dtype=np.int64)
    grid = grid.reshape([matrix[row][level] for row, level in by_level])
    aside = [at for at, (row, _) in enumerate(by_level) if row not in over]
    inside = [at for at, (row, _) in enumerate(by_level) if row in over]
    members = math.prod(grid.shape[at] for at in inside)
    together: np.ndarray = grid.transpose([*aside, *inside]).reshape(-1, members)
    return together


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "nothing"
