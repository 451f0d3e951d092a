"""In-order binary tree.

Idea: a binary tree in which every subtree is a range of ranks that ends with its root, so that sums meet in rank order even
    where the operation does not commute. The last rank is on top; it hands the sum on to the root, if that is another.
Cost: about 2 (lg p + S - 1) turns of (alpha + n/S beta), and alpha + n beta to the root.
Knobs: segment_bytes=0 (the message whole).
Holds: neighbours in rank order are combined, and only they.
Figure: none; a building block.
Source: open-mpi/ompi, coll/tuned algorithm 6 of reduce.
Declines: broadcast (the order of the ranks does not matter to it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms import trees
from ringwright.algorithms.offers import require_op, segments_of
from ringwright.ground.knobs import SegmentBytes

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("reduce", "all-reduce", "barrier")


def in_order_binary(
    collective: Collective, topology: Topology | None = None, *, segment_bytes: SegmentBytes = 0
) -> Program:
    """Return a reduce, all-reduce or barrier over a binary tree that keeps the order of the ranks."""
    del topology
    require_op("in_order_binary", collective, OPS)
    segments = segments_of(collective, segment_bytes)
    tree = trees.in_order_binary(collective.p)
    return trees.tree_program("in_order_binary", collective, tree, segments)
