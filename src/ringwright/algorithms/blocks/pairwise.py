"""Pairwise.

Idea: in round k every rank sends to the rank k behind it and hears from the rank k before it, so that each round is a
    permutation and no port has two messages.
Cost: (p-1) alpha + (p-1)/p n beta (and gamma for a reduce-scatter), n the bytes one rank sends in all.
Knobs: xor=False (partners r XOR k, which exchange; p a power of two).
Holds: one message a rank and round in each direction; a rank takes the next when it has put away the one before.
Figure: none; a building block.
Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005.
Declines: reductions that keep the order of the ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms.blocks.direct import in_rounds, towards
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.powers import RankDigits
from ringwright.ground.errors import UsageError
from ringwright.model.program import Block, Op, Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-to-all", "reduce-scatter", "all-gather")


def pairwise(collective: Collective, topology: Topology | None = None, *, xor: bool = False) -> Program:
    """Return the pairwise program of an all-to-all, reduce-scatter or all-gather."""
    del topology
    require_op("pairwise", collective, OPS)
    require_commutative("pairwise", collective, "linear, butterfly or recursive_doubling")
    p = collective.p
    if p == 1:
        return nothing("pairwise", collective, xor=xor)
    if xor and p & (p - 1):
        raise UsageError(
            f"pairwise by XOR needs a power of two, not {p} ranks", remedy="take a power of two, or xor=False"
        )
    exchange = _partners if xor else towards
    return in_rounds("pairwise", collective, lambda number: exchange(collective, number), 1, xor=xor)


def _partners(collective: Collective, mask: int) -> Block:
    """Return what every rank sends to the rank whose number differs in the bits of ``mask``."""
    p, fold = collective.p, RankDigits(collective.p)
    dst = fold.number({bit: 1 for bit in range(fold.digits) if mask >> bit & 1})
    if collective.op != "all-to-all":
        op = Op.REDUCE if collective.reduces else Op.SEND
        return fold.block(op, dst, dst if collective.reduces else fold.number())
    # Block s p + (s XOR mask), bit by bit: a bit that turns adds p - 1 where it is set and 1 where it is not.
    weights = [(p - 1 if mask >> bit & 1 else p + 1) << bit for bit in range(fold.digits)]
    return fold.block(Op.SEND, dst, fold.number(None, weights, mask))
