"""Binary tree.

Idea: a tree whose nodes have two children each, its levels filled one after the other; segments go down or up it.
Cost: with d = floor(lg p) levels below the root, about 2 (d + S - 1) turns of (alpha + n/S beta).
Knobs: fanout=2; segment_bytes=0 (the message whole).
Holds: no rank sends a segment more than ``fanout`` times; odd and even ranks are different halves of the tree.
Figure: none; a building block.
Source: open-mpi/ompi, coll/tuned algorithm 5 of bcast and 4 of reduce; ``tree`` with k children in MPICH.
Declines: reductions that keep the order of the ranks (see in_order_binary).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms.offers import require_op, segments_of
from ringwright.algorithms.trees import TREE_OPS, level_tree, require_radix, tree_program
from ringwright.ground.knobs import Radix, SegmentBytes

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = TREE_OPS


def binary_tree(
    collective: Collective, topology: Topology | None = None, *, fanout: Radix = 2, segment_bytes: SegmentBytes = 0
) -> Program:
    """Return broadcast, reduce, all-reduce or barrier over a tree of ``fanout`` children a node."""
    del topology
    require_op("binary_tree", collective, OPS)
    require_radix("binary_tree", fanout, 2)
    segments = segments_of(collective, segment_bytes)
    tree = level_tree(collective.p, fanout)
    return tree_program("binary_tree", collective, tree, segments, fanout=fanout)
