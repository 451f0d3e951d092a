"""k-nomial tree.

Idea: on each level every rank that has the message sends it to k-1 others, so that k times as many have it afterwards.
Cost: broadcast and reduce ceil(log_k p) levels of (k-1) (alpha + n beta).
Knobs: radix=4; segment_bytes=0 (the message whole).
Holds: a reduction meets the ranks in order, counted from the root.
Figure: none; a building block.
Source: open-mpi/ompi, coll/tuned algorithm 7 of bcast and 8 of reduce.
Declines: nothing of what a tree can do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms import trees
from ringwright.algorithms.offers import require_op, segments_of
from ringwright.ground.knobs import Radix, SegmentBytes

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = trees.TREE_OPS


def knomial(
    collective: Collective, topology: Topology | None = None, *, radix: Radix = 4, segment_bytes: SegmentBytes = 0
) -> Program:
    """Return broadcast, reduce, all-reduce or barrier over a k-nomial tree."""
    del topology
    require_op("knomial", collective, OPS)
    trees.require_radix("knomial", radix, 2)
    segments = segments_of(collective, segment_bytes)
    tree = trees.knomial(collective.p, radix)
    return trees.tree_program("knomial", collective, tree, segments, radix=radix)
