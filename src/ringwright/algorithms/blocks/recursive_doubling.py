"""Recursive doubling.

Idea: in round k every rank exchanges all it has with the rank whose number differs in bit k, so that each knows twice as much.
Cost: all-reduce ceil(lg p) (alpha + n beta + n gamma); all-gather lg p alpha + (p-1)/p n beta; reduce-scatter lg p alpha +
    (lg p - (p-1)/p) n (beta + gamma); p not a power of two: two more rounds (fold, unfold) of alpha + n beta. Scan and
    exscan ceil(lg p) (alpha + n beta + n gamma) for any p.
Knobs: none.
Holds: the order of the ranks is kept; every rank has the same bits of the result.
Figure: none; a building block.
Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005; scans: open-mpi/ompi coll/base, pmodels/mpich (algorithm of both).
Declines: rooted collectives and all-to-all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms import prefixes
from ringwright.algorithms.offers import is_even, require_op
from ringwright.algorithms.powers import RankDigits, doubling
from ringwright.model.collective import PREFIXES
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "barrier", "all-gather", "reduce-scatter", *PREFIXES)


def recursive_doubling(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the recursive doubling program of an all-reduce, barrier, all-gather, reduce-scatter, scan or exscan."""
    del topology
    require_op("recursive_doubling", collective, OPS)
    if collective.op in PREFIXES:
        return prefixes.doubled("recursive_doubling", collective)
    if collective.p == 1:
        return nothing("recursive_doubling", collective)
    fold = RankDigits(collective.p)
    make, cost = {"all-gather": (_gather, _gather_cost), "reduce-scatter": (_scatter, _scatter_cost)}.get(
        collective.op, (_reduce, _reduce_cost)
    )
    rounds = fold.digits + (0 if fold.is_whole else 2)
    return Program(
        "recursive_doubling",
        collective,
        cut(collective),
        lambda: make(collective, fold),
        rounds,
        cost(collective, fold),
    )


# ------------------------------------------------------------------------------------------------ all-reduce, barrier
def _reduce(collective: Collective, fold: RankDigits) -> Iterator[Step]:
    yield from fold.enter(1)
    for digit in range(fold.digits):
        yield Step((fold.block(Op.REDUCE, fold.number({digit: 1}), fold.number(None, [0] * fold.digits)),), "exchange")
    yield from fold.leave(1)


def _reduce_cost(collective: Collective, fold: RankDigits) -> Cost:
    n, folded = float(collective.size_bytes), collective.p - fold.size
    rounds = fold.digits + 2 * (folded > 0)
    sent = n * (fold.size * fold.digits + 2 * folded)
    return Cost((Term(rounds, rounds * n),), sent, (fold.digits + (folded > 0)) * n)


# -------------------------------------------------------------------------------------------------------- all-gather
def _gather(collective: Collective, fold: RankDigits) -> Iterator[Step]:
    ranks, acting = fold.others()
    if len(ranks):
        yield Step((explicit(Op.SEND, ranks, acting, ranks),), "fold")
    yield from doubling(fold, list(reversed(range(fold.digits))), fold.starts)
    yield from fold.leave(collective.p)


def _gather_cost(collective: Collective, fold: RankDigits) -> Cost:
    p, n, folded = collective.p, float(collective.size_bytes), collective.p - fold.size
    ranks, _ = fold.others()
    blocks = collective.block_bytes
    entered = float(blocks[ranks].sum())
    terms = [Term(fold.digits, n * (fold.size - 1) / fold.size)]
    if folded:
        terms += [Term(1, n / p), Term(1, n)]
    return Cost(
        tuple(terms), entered + n * (fold.size - 1) + n * folded, is_even=fold.is_whole and is_even(collective, 1)
    )


# ----------------------------------------------------------------------------------------------------- reduce-scatter
def _scatter(collective: Collective, fold: RankDigits) -> Iterator[Step]:
    """Yield the exchanges. In round k a rank sends its sums of all blocks but those of its own 2**k ranks.

    Its partner does not need those. Of the blocks of the partner's 2**k ranks the partner adds only its own and drops the rest.
    """
    yield from fold.enter(collective.p)
    for digit in range(fold.digits):
        partner = fold.number({digit: 1})
        weights = [0 if low < digit else 2**low for low in range(fold.digits)]
        blocks = list(fold.ranges(Op.REDUCE, partner, partner, 1, fold.starts))
        for mask in range(1, 1 << digit):
            blocks += fold.ranges(Op.SEND, partner, fold.number(_flips(mask, 0) | {digit: 1}), 1, fold.starts)
        for mask in range(2, fold.size >> digit):
            position = fold.number(_flips(mask, digit), weights)
            blocks += fold.ranges(Op.REDUCE, partner, position, 2**digit, fold.starts)
        yield Step(tuple(blocks), "exchange")
    ranks, acting = fold.others()
    if len(ranks):
        yield Step((explicit(Op.SEND, acting, ranks, ranks),), "unfold")


def _flips(mask: int, first: int) -> dict[int, int]:
    """Return the digits, counted from ``first``, whose bits are set in ``mask``: each is turned by 1."""
    return {first + bit: 1 for bit in range(mask.bit_length()) if mask >> bit & 1}


def _scatter_cost(collective: Collective, fold: RankDigits) -> Cost:
    n, folded = float(collective.size_bytes), collective.p - fold.size
    ranks, _ = fold.others()
    share = fold.digits - (fold.size - 1) / fold.size
    terms = [Term(fold.digits, n * share)]
    left = 0.0
    if folded:
        terms += [Term(1, n), Term(1, n / collective.p)]
        left = float(collective.block_bytes[ranks].sum())
    sent = n * (fold.size * fold.digits - (fold.size - 1)) + n * folded + left
    reduced = n * (share + (folded > 0))
    return Cost(tuple(terms), sent, reduced, is_even=fold.is_whole and is_even(collective, 1))
