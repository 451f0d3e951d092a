"""Spanning trees of a torus that share no directed link: as many as a rank has links, for any number of dimensions.

Offsets from the root are numbered like ranks, the first dimension fastest. Tree (i, +) ends with the link from one step along
dimension i to the root: a vertex that lies on the root's plane of i steps off it first, any other one brings its coordinates
to 0 by steps down, in the cyclic order of the dimensions from i + 1 on, that of i last. Tree (i, -) is its mirror image. At
every vertex the 2d trees leave by 2d different links: a dimension whose coordinate is 0 serves its own trees, any other one those
of the dimension before it that is not 0. This carries the edge-disjoint trees of hypercubes (Johnsson and Ho, IEEE
Trans. Computers 38(9), 1989) over to rings of any length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.topology import Topology

ROOT = -1  # parent of the root


@dataclass(frozen=True)
class TorusTrees:
    """Trees that collect at offset 0 of a torus of these ``sizes``; that of any other root is turned.

    ``parents`` holds of each tree the next offset on the way from each offset to the root: int64 of shape (trees, ranks).
    """

    sizes: tuple[int, ...]
    parents: np.ndarray

    @cached_property
    def depths(self) -> np.ndarray:
        """Links between each offset and the root, int64 of shape (trees, ranks)."""
        depths = np.zeros_like(self.parents)
        at = self.parents.copy()
        while (at != ROOT).any():
            depths += at != ROOT
            at = np.where(at == ROOT, ROOT, np.take_along_axis(self.parents, np.maximum(at, 0), axis=1))
        return depths

    @property
    def height(self) -> int:
        """Links on the longest way to the root."""
        return int(self.depths.max(initial=0))

    def turned(self, offsets: np.ndarray, root: int) -> np.ndarray:
        """Return the ranks at some offsets from a root, int64 of the shape of ``offsets``."""
        weights = np.cumprod((1, *self.sizes[:-1]))
        ranks = np.zeros_like(offsets)
        for size, weight in zip(self.sizes, weights.tolist(), strict=True):
            ranks += (offsets // weight + root // weight) % size * weight
        return ranks


def disjoint_trees(sizes: Sequence[int]) -> TorusTrees:
    """Return a tree for each link of a rank, none of which shares a directed link with another one.

    ``sizes`` are the lengths of the rings, all 3 or more, or all 2 (a hypercube). Raises DeclinedError where some are 2 only:
    both ways round such a ring are one link, which trees of longer rings want twice.
    """
    sizes = tuple(sizes)
    if 2 in sizes and max(sizes) > 2:
        raise DeclinedError(
            f"trees of disjoint links on a torus of {'x'.join(map(str, sizes))}: rings of 2 beside longer ones",
            remedy="trees=shortest, or rings that are all 2 or all longer",
        )
    signs = (1, -1) if max(sizes, default=2) > 2 else (1,)
    digits = _digits(sizes)
    return TorusTrees(sizes, np.array([_toward(sizes, digits, i, s) for i in range(len(sizes)) for s in signs]))


def shortest_tree(sizes: Sequence[int]) -> TorusTrees:
    """Return the one tree of the shortest ways that go along the first dimension first, down where both ways are equal."""
    sizes = tuple(sizes)
    digits = _digits(sizes)
    first = np.argmax(digits != 0, axis=0)
    here = np.take_along_axis(digits, first[None], axis=0)[0]
    step = np.where(2 * here <= np.array(sizes)[first], -1, 1)
    parents = _stepped(sizes, digits, first, step)
    return TorusTrees(sizes, parents[None])


def _digits(sizes: tuple[int, ...]) -> np.ndarray:
    """Return the coordinates of all offsets, int64 of shape (dimensions, ranks)."""
    return np.array(np.unravel_index(np.arange(math.prod(sizes)), sizes, order="F"), np.int64)


def _toward(sizes: tuple[int, ...], digits: np.ndarray, dimension: int, sign: int) -> np.ndarray:
    """Return the parents in tree (dimension, sign)."""
    order = [(dimension + later) % len(sizes) for later in (*range(1, len(sizes)), 0)]
    along = np.array(order)[np.argmax(digits[order] != 0, axis=0)]
    is_zero = digits[dimension] == 0
    return _stepped(sizes, digits, np.where(is_zero, dimension, along), np.where(is_zero, sign, -sign))


def _stepped(sizes: tuple[int, ...], digits: np.ndarray, along: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the offsets one step on along a dimension, -1 at the root; both int64 of shape (ranks,)."""
    moved = digits.copy()
    every = np.arange(digits.shape[1])
    moved[along, every] = (digits[along, every] + step) % np.array(sizes)[along]
    parents: np.ndarray = np.ravel_multi_index(tuple(moved), sizes, order="F").astype(np.int64)
    parents[0] = ROOT
    return parents


def sides(topology: Topology) -> tuple[int, ...] | None:
    """Return the lengths of the rings that a machine's ranks are linked in, without those of 1; None where they are not."""
    sizes = tuple(size for _, size in topology.axes if size > 1)
    if math.prod(sizes) != topology.n_ranks or topology.n_ranks < 2:
        return None
    ranks, weight = np.arange(topology.n_ranks), 1
    for size in sizes:
        here = ranks // weight % size
        for step in (1, -1):
            there = ranks + ((here + step) % size - here) * weight
            if (topology.link_ids(ranks, there) < 0).any():
                return None
        weight *= size
    return sizes
