"""All-gather and reduce.

Idea: every rank gets every other's vector and adds them up itself; one round, no dependence, and any operation.
Cost: alpha + (p-1) n beta + (p-1) n gamma.
Knobs: none.
Holds: sums meet in rank order, outwards from each rank; every contribution travels straight.
Figure: none; a building block.
Source: open-mpi/ompi coll/tuned algorithm 7 of allreduce.
Declines: everything but all-reduce and barrier. Open MPI gathers by whatever its all-gather chooses; here all pairs talk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import require_op
from ringwright.model.program import Cost, Layout, Op, Program, Step, Term, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "barrier")


def allgather_reduce(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the all-reduce in which every rank adds up all vectors itself."""
    del topology
    require_op("allgather_reduce", collective, OPS)
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing("allgather_reduce", collective)
    # Slot 1 keeps what a rank contributes while slot 0 grows to the sum.
    held = (np.array([0, 1]), np.array([0, 0]))
    layout = Layout(1, collective.block_bytes, 1, 2, np.zeros(2, np.int64), (held,) * p)
    return Program(
        "allgather_reduce",
        collective,
        layout,
        lambda: _steps(p),
        1,
        Cost((Term(1, n * (p - 1)),), n * p * (p - 1), n * (p - 1)),
    )


def _steps(p: int) -> Iterator[Step]:
    rank = np.arange(p)
    away = np.arange(1, p)
    # The nearest below first, down to rank 0, then the nearest above: sums stay ranges of ranks.
    below, above = rank[:, None] - away, rank[:, None] + away
    src = np.concatenate((below, above), axis=1)
    legal = (src >= 0) & (src < p)
    dst = np.broadcast_to(rank[:, None], src.shape)
    yield Step((explicit(Op.REDUCE, src[legal], dst[legal], 1, 0),), "all-reduce")
