"""Parallel aggregated trees (PAT).

Idea: Bruck's all-gather with its distances from far to near: each rank first sends its own block far away, and more and more
    blocks to nearer ranks, so that the largest messages travel least. The reduce-scatter is the same, run backwards.
Cost: ceil(lg p) alpha + (p-1)/p n beta, any p.
Knobs: none; NCCL's bounded buffers (aggregation factor, linear phase) are left out.
Holds: every block reaches every rank once; ranks need no power of two.
Figure: logarithmic steps at small sizes (abstract); none in numbers.
Source: Jeaugey: PAT, arXiv 2506.20252; NCCL 2.23.
Declines: all but all-gather and reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.model.collective import Collective
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, nothing, turn

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-gather", "reduce-scatter")


def pat(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the program of an all-gather or reduce-scatter over trees from far to near."""
    del topology
    require_op("pat", collective, OPS)
    require_commutative("pat", collective)
    p = collective.p
    if p == 1:
        return nothing("pat", collective)
    steps = list(_gather(p) if collective.op == "all-gather" else _scatter(p))
    block = float(collective.block_bytes.max(initial=0))
    reduced = block * (p - 1) if collective.reduces else 0.0
    path = (Term(len(steps), block * (p - 1)),)
    cost = Cost(path, float(collective.size_bytes) * (p - 1), reduced, is_even=is_even(collective, 1))
    return Program("pat", collective, cut(collective), lambda: steps, len(steps), cost)


def _gather(p: int) -> Iterator[Step]:
    """Yield the rounds.

    At distance d rank r holds the blocks of the ranks r, r - 2d, r - 4d, ..., and sends those that rank r + d still lacks.
    """
    distance = 1 << (p - 1).bit_length() - 1
    while distance:
        held = range(0, p - distance, 2 * distance)
        blocks = (Block(Op.SEND, (p,), turn(p), turn(p, distance), turn(p, -back)) for back in held)
        yield Step(tuple(blocks), "all-gather")
        distance //= 2


def _scatter(p: int) -> Iterator[Step]:
    """The same moves backwards: from near to far, each adding what it brings."""
    for step in reversed(list(_gather(p))):
        blocks = (Block(Op.REDUCE, block.shape, block.dst, block.src, block.chunk) for block in step.blocks)
        yield Step(tuple(blocks), "reduce-scatter")
