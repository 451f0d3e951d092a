"""Where ranks stand in a picture: in columns and rows along the axes of the machine, an NVLink domain to a row, or in a circle.

Axes of two are counted in Gray's order, so that the neighbours of a hypercube are neighbours on the page.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.topology import Topology

MOST_CIRCLE = 80
WIDEST = 32  # columns, as long as there is a choice


class RankGrid(NamedTuple):
    """Column and row of each rank, in steps from one to the next; ``is_circle``: neighbours in the order of ranks."""

    x: list[float]
    y: list[float]
    columns: float
    rows: float
    is_circle: bool


def rank_grid(topology: Topology) -> RankGrid:
    """Return where the ranks of a machine stand."""
    n, sizes = topology.n_ranks, [size for _, size in topology.axes if size > 1]
    if math.prod(sizes) == n and len(sizes) > 1:
        return _along(sizes, n)
    domains = topology.domains
    if domains is not None and 1 < int(domains.max()) + 1 < n:
        return _by_host(domains.tolist())
    return _circle(n) if n <= MOST_CIRCLE else _along([min(WIDEST, math.ceil(math.sqrt(n) * 1.5)), 1], n)


def _along(sizes: Sequence[int], n: int) -> RankGrid:
    """Let axes run across and down, the first half of them across; of three the last one sets sheets side by side."""
    if len(sizes) == 2:
        across, down = [0], [1]
    elif len(sizes) == 3:
        across, down = [0, 2], [1]
    else:
        across, down = list(range(len(sizes) // 2)), list(range(len(sizes) // 2, len(sizes)))
    x, y = [], []
    gap = 1 if len(sizes) == 3 else 0
    for rank in range(n):
        digits, rest = [], rank
        for size in sizes:
            digits.append(rest % size)
            rest //= size
        digits[-1] += rest * sizes[-1]
        x.append(_counted(digits, sizes, across) + gap * digits[2] if gap else _counted(digits, sizes, across))
        y.append(_counted(digits, sizes, down))
    return RankGrid([float(each) for each in x], [float(each) for each in y], max(x) + 1.0, max(y) + 1.0, False)


def _counted(digits: Sequence[int], sizes: Sequence[int], axes: Sequence[int]) -> int:
    """Return the number that some digits write, the first one lowest; bits in Gray's order."""
    value = 0
    for axis in reversed(axes):
        value = value * sizes[axis] + digits[axis]
    if len(axes) > 1 and all(sizes[axis] == 2 for axis in axes):
        shift = value >> 1
        while shift:
            value ^= shift
            shift >>= 1
    return value


def _by_host(hosts: Sequence[int]) -> RankGrid:
    seen: dict[int, int] = {}
    x, y = [], []
    for host in hosts:
        x.append(float(seen.get(host, 0)))
        y.append(float(host))
        seen[host] = seen.get(host, 0) + 1
    return RankGrid(x, y, max(x) + 1, max(y) + 1, False)


def _circle(n: int) -> RankGrid:
    """Set ranks on a circle, clockwise from the top."""
    radius = max(1.0, n / 6.0)
    turns = [2 * math.pi * rank / n for rank in range(n)]
    x = [radius + radius * math.sin(turn) for turn in turns]
    y = [radius - radius * math.cos(turn) for turn in turns]
    return RankGrid(x, y, 2 * radius + 1, 2 * radius + 1, True)
