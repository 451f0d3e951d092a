"""The least of a grid of networks that holds, where less never holds if more does not.

Each axis of the grid goes from the network as it is (0) to smaller and smaller ones. First it is asked how far each axis can go
alone: no answer lies beyond. What is left is tried from the smallest network on; one that fails rules out all that are nowhere
larger. Since a library may choose anew, one step less can hold where theory says it cannot: then the search goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

Point = tuple[int, ...]
Holds = Callable[[Point], bool]


def least(lengths: Sequence[int], holds: Holds, size: Callable[[Point], float]) -> Point:
    """Return the point of least size that holds; all zeros is taken to hold.

    Parameters
    ----------
    lengths
        Points on each axis.
    holds
        Whether a point keeps what it must; asked of few points, some of them twice.
    size
        What is to be least; it falls along each axis.
    """
    start = (0,) * len(lengths)
    ends = [_alone(axis, lengths[axis], holds, start) for axis in range(len(lengths))]
    failed: list[Point] = []
    best = start
    for point in sorted(product(*(range(end + 1) for end in ends)), key=lambda each: (size(each), each)):
        if any(all(mine >= its for mine, its in zip(point, each, strict=True)) for each in failed):
            continue
        if point == start or holds(point):
            best = point
            break
        failed.append(point)
    return _descended(best, lengths, holds, size)


def below(point: Point, lengths: Sequence[int]) -> list[tuple[int, Point]]:
    """Return (axis, point) of every point that is one step smaller on one axis."""
    return [
        (axis, (*point[:axis], at + 1, *point[axis + 1 :])) for axis, at in enumerate(point) if at + 1 < lengths[axis]
    ]


def _alone(axis: int, length: int, holds: Holds, start: Point) -> int:
    """Return how far one axis can go while the others stay: by halving."""
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        if holds((*start[:axis], middle, *start[axis + 1 :])):
            low = middle
        else:
            high = middle
    return low


def _descended(point: Point, lengths: Sequence[int], holds: Holds, size: Callable[[Point], float]) -> Point:
    """Return a point of which no neighbour below is smaller and holds."""
    while True:
        smaller = sorted((each for _, each in below(point, lengths) if size(each) < size(point)), key=size)
        following = next((each for each in smaller if holds(each)), None)
        if following is None:
            return point
        point = following
