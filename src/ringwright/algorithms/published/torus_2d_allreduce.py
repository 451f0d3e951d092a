"""2D-torus all-reduce.

Idea: lay p = X * Y ranks out as a grid; reduce-scatter along the rows, all-reduce along the columns on 1/X of the data,
    all-gather along the rows. Latency falls from p to X + Y, and rows can be the fast network.
Cost: 2(X-1) alpha_h + 2(X-1)/X n beta_h + 2(Y-1) alpha_v + 2(Y-1)/Y n/X beta_v; with equal alpha least at X = Y = sqrt(p).
Knobs: x (the topology's first axis, else the divisor of p next to its root); inner=ring along rows, outer=ring along columns.
Holds: all ranks work in every phase; bytes per rank 2(X-1)/X n + 2(Y-1)/Y n/X.
Figure: ImageNet/ResNet-50 in 224 s on 2,176 GPUs, later 122 s (abstracts of both versions).
Source: Mikami et al., arXiv 1811.05233.
Declines: all but all-reduce, reduce-scatter and all-gather.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.compose import Algorithm
from ringwright.algorithms.levels import OPS, Levels, factorise
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Ranks
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology


def torus_2d_allreduce(
    collective: Collective,
    topology: Topology | None = None,
    *,
    x: Ranks | None = None,
    inner: Algorithm = ring,
    outer: Algorithm = ring,
) -> Program:
    """Return the program over a grid of ``x`` columns."""
    require_op("torus-2d-allreduce", collective, OPS)
    require_commutative("torus-2d-allreduce", collective)
    p = collective.p
    columns = x or _columns(p, topology)
    if p % columns:
        raise UsageError(f"x={columns} does not divide {p} ranks", remedy=f"x={_columns(p, None)}")
    sizes = factorise(p, None, (columns, p // columns))
    if not sizes:
        return nothing("torus-2d-allreduce", collective)
    chosen = [inner, outer] if len(sizes) == 2 else [inner if columns > 1 else outer]
    return Levels(collective, sizes, chosen, topology).program("torus-2d-allreduce")


def _columns(p: int, topology: Topology | None) -> int:
    """Return the topology's first axis where it divides p, else the divisor of p next below its square root."""
    if topology is not None and topology.axes and p % topology.axes[0][1] == 0:
        return topology.axes[0][1]
    return next(divisor for divisor in range(math.isqrt(p), 0, -1) if p % divisor == 0)
