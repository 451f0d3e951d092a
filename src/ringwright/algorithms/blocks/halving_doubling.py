"""Halving and doubling.

Idea: at distances 1, 2, 4, ... partners halve what they still have to add up; then they double it back at ... 4, 2, 1. Rounds of a
    tree, bytes of a ring; most bytes pass between neighbours.
Cost: 2 lg p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; p not a power of two: 2 alpha + 2 n beta + n gamma more, for the fold.
Knobs: none.
Holds: partners differ in one bit of the rank; neighbours are combined in rank order.
Figure: none; a building block.
Source: Rabenseifner, ICCS 2004; Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005 (the fold).
Declines: all but all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.compose import embed
from ringwright.errors import UsageError
from ringwright.program import Affine, Block, Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.collective import Collective
    from ringwright.topology import Topology

OPS = ("all-reduce",)


def halving_doubling(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the all-reduce whose partners differ in one bit of the rank, nearest first."""
    del topology
    if collective.op not in OPS:
        raise UsageError(f"halving-doubling does no {collective.op}", remedy=f"one of: {', '.join(OPS)}")
    p = collective.p
    if p == 1:
        return nothing("halving-doubling", collective)
    bits = p.bit_length() - 1
    acting, n = 1 << bits, float(collective.size_bytes)
    folded = p - acting
    exchanged = 2 * n * (acting - 1) / acting
    return Program(
        "halving-doubling", collective, cut(collective, acting), lambda: _steps(p, bits), 2 * bits + 2 * (folded > 0),
        Cost(
            (Term(2 * bits, exchanged), *([Term(2, 2 * n)] if folded else [])),
            2 * n * (acting - 1) + 2 * n * folded, exchanged / 2 + n * (folded > 0),
            is_even=collective.size_bytes % (acting * collective.unit_bytes) == 0,
        ),
    )  # fmt: skip


def _steps(p: int, bits: int) -> Iterator[Step]:
    acting = 1 << bits
    folded = p - acting
    if not folded:
        yield from exchanges(bits)
        return
    # The first 2 * folded ranks are pairs; the even one of a pair leaves the work to the odd one.
    idle = np.arange(0, 2 * folded, 2)
    yield Step((explicit(Op.REDUCE, idle, idle + 1, 0, span=acting),), "fold")
    yield from embed(exchanges(bits), [*range(1, 2 * folded, 2), *range(2 * folded, p)])
    yield Step((explicit(Op.SEND, idle + 1, idle, 0, span=acting),), "unfold")


def exchanges(bits: int) -> Iterator[Step]:
    """Yield the steps among 2**bits ranks: of what two partners share, the one with bit 0 keeps the front half."""
    for bit in range(bits):
        yield Step((_exchange(Op.REDUCE, bits, bit, gives=True),), "reduce-scatter")
    for bit in reversed(range(bits)):
        yield Step((_exchange(Op.SEND, bits, bit, gives=False),), "all-gather")


def _exchange(op: Op, bits: int, bit: int, *, gives: bool) -> Block:
    """Every rank sends its partner the half that the partner keeps (gives), or the one it has itself."""
    order = range(bits - 1, -1, -1)  # the last axis runs fastest: it is bit 0
    src = Affine(tuple((1, 0, 2, 1 << each) for each in order))
    dst = Affine(tuple((1, int(each == bit), 2, 1 << each) for each in order))
    half = 1 << bits >> 1
    chunk = Affine(tuple((1, int(gives and each == bit), 2, half >> each if each <= bit else 0) for each in order))
    return Block(op, (2,) * bits, src, dst, chunk, span=half >> bit)
