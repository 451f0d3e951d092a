"""Recursive halving.

Idea: a rank and its partner at half the distance each keep one half of the blocks and add up the other's contribution to it;
    then the same within the halves.
Cost: lg p alpha + (p-1)/p n (beta + gamma); p not a power of two: alpha + n (beta + gamma) to fold, alpha + n/p beta to unfold.
Knobs: none.
Holds: what a rank still has to reduce is one range of blocks, always.
Figure: none; a building block.
Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005.
Declines: reductions that keep the order of the ranks (see butterfly).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.algorithms.powers import RankDigits, halving
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("reduce-scatter",)


def recursive_halving(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the recursive halving program of a reduce-scatter."""
    del topology
    require_op("recursive_halving", collective, OPS)
    require_commutative("recursive_halving", collective, "butterfly or recursive_doubling")
    if collective.p == 1:
        return nothing("recursive_halving", collective)
    fold = RankDigits(collective.p)
    return Program(
        "recursive_halving",
        collective,
        cut(collective),
        lambda: _steps(fold),
        fold.digits + (0 if fold.is_whole else 2),
        halving_cost(collective, fold),
    )


def halving_cost(collective: Collective, fold: RankDigits) -> Cost:
    """Return what a reduce-scatter by halving costs, folded where p is no power of two."""
    n, folded = float(collective.size_bytes), collective.p - fold.size
    ranks, _ = fold.others()
    terms = [Term(fold.digits, n * (fold.size - 1) / fold.size)]
    sent = n * (fold.size - 1)
    if folded:
        terms += [Term(1, n), Term(1, n / collective.p)]
        sent += n * folded + float(collective.block_bytes[ranks].sum())
    reduced = n * ((fold.size - 1) / fold.size + (folded > 0))
    return Cost(tuple(terms), sent, reduced, is_even=fold.is_whole and is_even(collective, 1))


def _steps(fold: RankDigits) -> Iterator[Step]:
    yield from fold.enter(fold.p)
    yield from halving(fold, list(reversed(range(fold.digits))), fold.starts)
    ranks, acting = fold.others()
    if len(ranks):
        yield Step((explicit(Op.SEND, acting, ranks, ranks),), "unfold")
