"""From forests to moves: blocks cut by the shares of their trees, and who sends which part to whom, how far below the root.

Trees that collect are read backwards, from the leaves to the root, and add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.bounds.forests import Forest
    from ringwright.bounds.symmetry import Turns

MOST_LISTED = 128  # turns whose moves are listed


@dataclass(frozen=True)
class TreeMoves:
    """Arcs of trees as moves: who sends what to whom, and how far below the root.

    ``src`` and ``dst`` are places, ``part`` the part of the root's block, ``tree`` the number of its tree, ``depth`` counts from
    0: int64 of shape (moves,). With turns they are those of root 0 alone, which stand for the trees of all roots.
    """

    src: np.ndarray
    dst: np.ndarray
    root: np.ndarray
    part: np.ndarray
    tree: np.ndarray
    depth: np.ndarray
    collects: bool = False
    turns: Turns | None = None

    @property
    def rounds(self) -> int:
        """Arcs on the longest branch."""
        return int(self.depth.max(initial=-1)) + 1


def shares_of(forest: Forest, roots: Sequence[int]) -> dict[int, list[tuple[int, float, float]]]:
    """Return for each root its trees with the stretch of its block that each carries: (tree, begin, end) in parts of 1."""
    stretches: dict[int, list[tuple[int, float, float]]] = {root: [] for root in roots}
    for tree, (root, share) in enumerate(zip(forest.roots.tolist(), forest.shares.tolist(), strict=True)):
        mine = stretches[root]
        begin = mine[-1][2] if mine else 0.0
        mine.append((tree, begin, begin + share / forest.of))
    return {root: [*mine[:-1], (mine[-1][0], mine[-1][1], 1.0)] for root, mine in stretches.items()}


def cuts(forests: Sequence[Forest]) -> tuple[dict[int, list[float]], int]:
    """Return where the block of each root is cut, so that every part lies in one tree of each forest; and the most parts.

    Roots with fewer parts have their largest ones halved, so that all have as many.
    """
    roots = sorted({root for forest in forests for root in forest.roots.tolist()})
    ends: dict[int, list[float]] = {}
    for root in roots:
        inner = {round(end, 9) for forest in forests for _, _, end in shares_of(forest, roots)[root]}
        ends[root] = sorted({0.0, 1.0} | inner)
    most = max(len(points) for points in ends.values()) - 1
    for points in ends.values():
        while len(points) <= most:
            at = max(range(len(points) - 1), key=lambda i: points[i + 1] - points[i])
            points.insert(at + 1, (points[at] + points[at + 1]) / 2)
    return ends, most


def even_cuts(forests: Sequence[Forest]) -> dict[int, list[float]]:
    """Return the cuts of each root's block into as many equal parts as the shares are of."""
    roots = sorted({root for forest in forests for root in forest.roots.tolist()})
    of = forests[0].of
    return {root: [each / of for each in range(of + 1)] for root in roots}


def is_listed(turns: Turns) -> bool:
    """Return whether the moves of all roots are listed, instead of those of one root with the turns that repeat them."""
    return turns.table is not None or turns.order <= MOST_LISTED


def tree_moves(forest: Forest, ends: dict[int, list[float]]) -> TreeMoves:
    """Return the moves of a forest for blocks that are cut at ``ends``, those of all roots where turns are few."""
    arcs, rounds, turns = forest.arcs, forest.arrivals, forest.arcs.symmetry
    columns: list[list[np.ndarray]] = []
    for root, stretches in shares_of(forest, sorted(ends)).items():
        points = ends[root]
        for part, (begin, end) in enumerate(pairwise(points)):
            middle = (begin + end) / 2
            tree = next(number for number, first, last in stretches if first <= middle <= last)
            used = np.flatnonzero(forest.parents[tree] >= 0)
            arc = forest.parents[tree][used]
            same = (np.full(len(used), each) for each in (root, part, tree))
            columns.append([arcs.src[arc], arcs.dst[arc], *same, rounds[tree][used] - 1])
    src, dst, root_of, part_of, tree_of, depth = (np.concatenate(column) for column in zip(*columns, strict=True))
    if turns is not None and is_listed(turns):
        by = np.repeat(np.arange(turns.order), len(src))
        src, dst, root_of = (turns.turned(np.tile(each, turns.order), by) for each in (src, dst, root_of))
        part_of, tree_of, depth = (np.tile(each, turns.order) for each in (part_of, tree_of, depth))
        turns = None
    # First to the next rank, then to the one behind: so that no two ranks send to one at a time.
    order = np.lexsort((part_of, root_of, (dst - src) % arcs.p))
    src, dst, root_of, part_of, tree_of, depth = (each[order] for each in (src, dst, root_of, part_of, tree_of, depth))
    return TreeMoves(src, dst, root_of, part_of, tree_of, depth, arcs.reversed, turns)


def of_all_roots(ends: dict[int, list[float]], turns: Turns | None) -> dict[int, list[float]]:
    """Return the cuts of every root's block: those of the root that stands for it."""
    if turns is None or not is_listed(turns):
        return ends
    every = np.arange(turns.order)
    return {
        int(image): points
        for root, points in ends.items()
        for image in turns.turned(np.full(turns.order, root), every).tolist()
    }
