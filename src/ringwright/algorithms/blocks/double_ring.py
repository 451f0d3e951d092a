"""Double ring.

Idea: a token goes round the ring twice: the first lap collects that everybody has come, the second tells everybody.
Cost: 2 p alpha.
Knobs: none.
Holds: every rank hears from its left neighbour only.
Figure: none; a building block.
Source: open-mpi/ompi coll/tuned algorithm 2 of barrier.
Declines: everything but barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms.offers import require_op
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("barrier",)


def double_ring(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the barrier in which a token goes round twice."""
    del topology
    require_op("double_ring", collective, OPS)
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing("double_ring", collective)
    return Program(
        "double_ring",
        collective,
        cut(collective),
        lambda: _steps(p),
        2 * p,
        Cost((Term(2 * p, 2 * p * n),), 2 * p * n, (p - 1) * n),
    )


def _steps(p: int) -> Iterator[Step]:
    for lap in range(2):
        for rank in range(p):
            collects = lap == 0 and rank < p - 1
            yield Step((explicit(Op.REDUCE if collects else Op.SEND, rank, (rank + 1) % p, 0),), f"lap {lap + 1}")
