"""Chain.

Idea: the ranks form a few chains that hang from the root; segments travel down them, one behind the other.
Cost: broadcast, reduce with one chain (p-2+S) (alpha + n/S beta); with f chains of length l = ceil((p-1)/f) about (l + f S) such
    turns.
Knobs: fanout=4 chains; segment_bytes=0 (the message whole).
Holds: every rank but the root passes its data on to one other rank.
Figure: none; a building block.
Source: open-mpi/ompi, coll/tuned algorithm 2 of bcast and reduce.
Declines: reductions that keep the order of the ranks, with more than one chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms.offers import require_op, segments_of
from ringwright.algorithms.trees import TREE_OPS, chains, require_radix, tree_program
from ringwright.ground.knobs import Range, SegmentBytes

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = TREE_OPS

Chains = Annotated[int, Range(1, 64)]


def chain(
    collective: Collective, topology: Topology | None = None, *, fanout: Chains = 4, segment_bytes: SegmentBytes = 0
) -> Program:
    """Return broadcast, reduce, all-reduce or barrier over ``fanout`` chains."""
    del topology
    require_op("chain", collective, OPS)
    require_radix("chain", fanout, 1)
    segments = segments_of(collective, segment_bytes)
    tree = chains(collective.p, fanout)
    return tree_program("chain", collective, tree, segments, fanout=fanout)
