"""Pipeline.

Idea: one chain from the root through all ranks; the message is cut into segments, so that every rank but the ends receives
    one segment while it sends the one before.
Cost: (p-2+S) (alpha + n/S beta); least at S = sqrt((p-2) n beta / alpha).
Knobs: segment_bytes=0 (the message whole: S = 1).
Holds: every rank sends each byte at most once; a reduction meets the ranks in order.
Figure: none; a building block.
Source: open-mpi/ompi, coll/tuned algorithm 3 of bcast and reduce.
Declines: nothing of what a tree can do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringwright.algorithms.offers import require_op, segments_of
from ringwright.algorithms.trees import TREE_OPS, chains, tree_program
from ringwright.ground.knobs import SegmentBytes

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = TREE_OPS


def pipeline(collective: Collective, topology: Topology | None = None, *, segment_bytes: SegmentBytes = 0) -> Program:
    """Return broadcast, reduce, all-reduce or barrier along one chain."""
    del topology
    require_op("pipeline", collective, OPS)
    segments = segments_of(collective, segment_bytes)
    return tree_program("pipeline", collective, chains(collective.p, 1), segments)


def best_segments(p: int, size_bytes: float, alpha_s: float, beta_s: float) -> int:
    """Return the number of segments that makes the pipeline fastest, for alpha in s and beta in s/B."""
    return max(1, round(math.sqrt(max(p - 2, 0) * size_bytes * beta_s / alpha_s)))
