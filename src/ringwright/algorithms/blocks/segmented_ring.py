"""Segmented ring.

Idea: the ring's reduce-scatter once per segment of each block, one behind the other, so that adding up one segment overlaps
    with the transfer of the next; then one all-gather of whole blocks.
Cost: (S+1)(p-1) alpha + 2(p-1)/p n beta; gamma hides behind beta where S > 1.
Knobs: segment_bytes=1 MiB (a block's segments; 0: whole).
Holds: the same sums in the same order as ring.
Figure: none; a building block.
Source: open-mpi/ompi coll/tuned algorithm 5 of allreduce.
Declines: everything but all-reduce; reductions that keep the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms.offers import require_commutative, require_op, segments_of
from ringwright.ground.knobs import SegmentBytes
from ringwright.model.program import Affine, Block, Cost, Op, Program, Step, Term, cut, nothing, turn

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)


def segmented_ring(
    collective: Collective, topology: Topology | None = None, *, segment_bytes: SegmentBytes = 1 << 20
) -> Program:
    """Return the ring all-reduce whose reduce-scatter runs segment by segment."""
    del topology
    require_op("segmented_ring", collective, OPS)
    require_commutative("segmented_ring", collective, "recursive_doubling or allgather_reduce")
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing("segmented_ring", collective)
    segments = segments_of(collective, segment_bytes, p)
    rounds = (p - 1) * (segments + 1)
    return Program(
        "segmented_ring",
        collective,
        cut(collective, p * segments),
        lambda: _steps(p, segments),
        rounds,
        Cost(
            (Term(rounds, 2 * (p - 1) / p * n),),
            2 * (p - 1) * n,
            (p - 1) / p * n,
            is_even=collective.size_bytes % (p * segments * collective.unit_bytes) == 0,
        ),
        knobs={"segments": segments},
    )


def _steps(p: int, segments: int) -> Iterator[Step]:
    for segment in range(segments):
        for number in range(p - 1):
            chunk = Affine(((1, -number % p, p, segments),), segment)
            yield Step((Block(Op.REDUCE, (p,), turn(p), turn(p, 1), chunk),), "reduce-scatter")
    for number in range(p - 1):
        chunk = turn(p, 1 - number, segments)
        yield Step((Block(Op.SEND, (p,), turn(p), turn(p, 1), chunk, span=segments),), "all-gather")
