"""Neighbour exchange.

Idea: pairs of neighbours swap their blocks; then every rank turns to its other neighbour and hands on the two blocks that it
    got last, to and fro. Half the rounds of a ring, and only neighbours talk.
Cost: p/2 alpha + (p-1)/p n beta.
Knobs: none.
Holds: every exchange is with one of two neighbours; after the first, two blocks each.
Figure: none; a building block.
Source: Chen, Zhang, Luo, Yuan: Performance evaluation of allgather algorithms on terascale Linux cluster, HPCASIA 2005.
Declines: an odd number of ranks (Open MPI takes a ring instead).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms.offers import is_even, require_op
from ringwright.ground.errors import UsageError
from ringwright.model.program import Affine, Block, Cost, Op, Program, Step, Term, cut, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-gather",)


def neighbor_exchange(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the neighbour exchange program of an all-gather on an even number of ranks."""
    del topology
    require_op("neighbor_exchange", collective, OPS)
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing("neighbor_exchange", collective)
    if p % 2:
        raise UsageError(
            f"neighbor_exchange needs an even number of ranks, not {p}", remedy="take an even number of ranks, or ring"
        )
    return Program(
        "neighbor_exchange",
        collective,
        cut(collective),
        lambda: _steps(p),
        p // 2,
        Cost((Term(p // 2, n * (p - 1) / p),), n * (p - 1), is_even=is_even(collective, 1)),
    )


def _steps(p: int) -> Iterator[Step]:
    pairs = p // 2
    even, odd = (Affine(((2, side, p, 1),)) for side in (0, 1))
    first = (Block(Op.SEND, (pairs,), even, odd, even), Block(Op.SEND, (pairs,), odd, even, odd))
    yield Step(first, "all-gather")
    for number in range(1, pairs):
        # Even ranks turn left first; what comes in from that side lies one pair further away each time.
        towards = -1 if number % 2 else 1
        away = number // 2 * -towards
        blocks = (_round(pairs, 0, towards, away), _round(pairs, 1, -towards, -away))
        yield Step(blocks, "all-gather")


def _round(pairs: int, side: int, towards: int, away: int) -> Block:
    """Every rank of one side hands the pair of blocks ``away`` pairs from its own to its neighbour."""
    src = Affine(((2, side, 2 * pairs, 1),))
    dst = Affine(((2, (side + towards) % (2 * pairs), 2 * pairs, 1),))
    return Block(Op.SEND, (pairs,), src, dst, Affine(((1, away % pairs, pairs, 2),)), span=2)
