"""Recursive multiplying.

Idea: recursive doubling with k partners at a time: in round i every rank exchanges with the k-1 ranks whose numbers differ in
    digit i to the base k. Fewer rounds, more messages in each; good where several ports can be fed at once.
Cost: log_k p rounds of (k-1) messages: log_k p alpha + (k-1) log_k p n beta; p no power of k: ranks fold into groups first.
Knobs: radix=2.
Holds: the order of the ranks is kept; radix 2 is recursive doubling.
Figure: none; a building block.
Source: Ruefenacht, Bull, Booth: Generalisation of recursive doubling for allreduce, EuroMPI 2016; pmodels/mpich
    ``recursive_multiplying``.
Declines: everything but all-reduce and barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import require_op
from ringwright.algorithms.powers import RankDigits
from ringwright.algorithms.trees import require_radix
from ringwright.ground.knobs import Radix
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "barrier")


def recursive_multiplying(collective: Collective, topology: Topology | None = None, *, radix: Radix = 2) -> Program:
    """Return the recursive multiplying program of an all-reduce or barrier."""
    del topology
    require_op("recursive_multiplying", collective, OPS)
    require_radix("recursive_multiplying", radix, 2)
    if collective.p == 1:
        return nothing("recursive_multiplying", collective, radix=radix)
    fold = RankDigits(collective.p, radix)
    n, folded = float(collective.size_bytes), collective.p - fold.size
    terms = [Term(fold.digits, fold.digits * (radix - 1) * n)]
    if folded:
        terms.append(Term(2, 2 * fold.deepest * n))
    return Program(
        "recursive_multiplying",
        collective,
        cut(collective),
        lambda: _steps(collective, fold),
        fold.digits + 2 * (folded > 0),
        Cost(
            tuple(terms),
            n * (fold.size * fold.digits * (radix - 1) + 2 * folded),
            n * (fold.digits * (radix - 1) + fold.deepest),
        ),
        knobs={"radix": radix},
    )


def _steps(collective: Collective, fold: RankDigits) -> Iterator[Step]:
    yield from fold.enter(1)
    everything = fold.number(None, [0] * fold.digits)
    for digit in range(fold.digits):
        if collective.commutative or fold.radix == 2:
            blocks = [fold.block(Op.REDUCE, fold.number({digit: by}), everything) for by in range(1, fold.radix)]
        else:
            blocks = _outwards(fold, digit)
        yield Step(tuple(blocks), "exchange")
    yield from fold.leave(1)


def _outwards(fold: RankDigits, digit: int) -> list[Block]:
    """Return the moves of a round such that each rank adds up its neighbours below, nearest first, and then those above."""
    acting, weight = fold.starts[1:] - 1, fold.radix**digit
    number = np.arange(fold.size)
    blocks: list[Block] = []
    for towards in (1, -1):
        for away in range(1, fold.radix):
            turned = number // weight % fold.radix + towards * away
            src = number[(turned >= 0) & (turned < fold.radix)]
            blocks.append(explicit(Op.REDUCE, acting[src], acting[src + towards * away * weight], 0))
    return blocks
