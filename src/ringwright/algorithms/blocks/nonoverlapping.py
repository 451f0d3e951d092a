"""Non-overlapping.

Idea: an all-reduce is a reduce to one rank and then a broadcast from it, a reduce-scatter a reduce and then a scatter; the
    second begins when the first is done.
Cost: that of the two parts; with binomial trees 2 ceil(lg p) (alpha + n beta) for an all-reduce.
Knobs: inner=binomial for the reduce; outer=binomial for the broadcast or scatter.
Holds: the order of the ranks is kept where the inner algorithm keeps it; every rank has the same bits of the result.
Figure: none; a building block.
Source: open-mpi/ompi coll/tuned, algorithm 2 of allreduce and 1 of reduce_scatter.
Declines: a reduce in segments before a scatter (blocks and segments would cut each other).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms.blocks.binomial import binomial
from ringwright.algorithms.compose import Algorithm, lift
from ringwright.algorithms.offers import require_op
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Layout, Program, Step, cut, nothing

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "barrier")


def nonoverlapping(
    collective: Collective,
    topology: Topology | None = None,
    *,
    inner: Algorithm = binomial,
    outer: Algorithm = binomial,
) -> Program:
    """Return the all-reduce, reduce-scatter or barrier made of a reduce and what follows it."""
    require_op("nonoverlapping", collective, OPS)
    if collective.p == 1:
        return nothing("nonoverlapping", collective)
    ranks, n, dtype = collective.group, collective.size_bytes, collective.dtype
    first = inner(
        Collective("reduce", ranks, n, dtype, collective.reduce_op, commutative=collective.commutative), topology
    )
    then = "scatter" if collective.op == "reduce-scatter" else "broadcast"
    second = outer(Collective(then, ranks, n, dtype, counts=collective.counts), topology)
    layout, weights = _common(collective, first, second)

    def steps() -> Iterator[Step]:
        for program, weight in zip((first, second), weights, strict=True):
            yield from lift(program.steps(), 1, weight, ())

    return Program(
        "nonoverlapping",
        collective,
        layout,
        steps,
        first.n_steps + second.n_steps,
        Cost(
            (*first.cost.terms, *second.cost.terms),
            first.cost.sent_bytes + second.cost.sent_bytes,
            first.cost.reduced_bytes,
            is_even=first.cost.is_even and second.cost.is_even,
        ),
        knobs={"inner": first.name, "outer": second.name},
    )


def _common(collective: Collective, first: Program, second: Program) -> tuple[Layout, tuple[int, int]]:
    """Return the layout that both cuts fall into, and how many of its chunks a chunk of each makes."""
    pieces = math.lcm(first.layout.n_chunks, second.layout.n_chunks)
    if collective.op == "reduce-scatter" and first.layout.n_chunks > 1:
        raise UsageError(f"{first.name} cuts into {first.layout.n_chunks} segments, which a scatter cannot follow")
    layout = cut(collective, pieces // collective.n_blocks)
    return layout, (pieces // first.layout.n_chunks, pieces // second.layout.n_chunks)
