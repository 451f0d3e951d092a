"""Butterfly.

Idea: recursive halving from the nearest partner outwards, so that sums meet in rank order; the blocks lie in the order of the
    reversed bits, so that each rank ends with its own.
Cost: lg p alpha + (p-1)/p n (beta + gamma); p not a power of two: alpha + n (beta + gamma) to fold, alpha + n/p beta to unfold.
Knobs: none.
Holds: the order of the ranks is kept.
Figure: none; a building block.
Source: Traeff: An improved algorithm for (non-commutative) reduce-scatter, EuroPVM/MPI 2005; open-mpi/ompi coll/tuned
    algorithm 4 of reduce_scatter; pmodels/mpich ``noncommutative`` for powers of two.
Declines: everything but reduce-scatter. Open MPI exchanges blocks at the end instead of laying them out beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.blocks.recursive_halving import halving_cost
from ringwright.algorithms.offers import require_op
from ringwright.algorithms.powers import RankDigits, halving
from ringwright.model.program import Layout, Op, Program, Step, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("reduce-scatter",)


def butterfly(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the butterfly program of a reduce-scatter."""
    del topology
    require_op("butterfly", collective, OPS)
    if collective.p == 1:
        return nothing("butterfly", collective)
    fold = RankDigits(collective.p)
    order, edges = _order(fold)
    return Program(
        "butterfly",
        collective,
        _layout(collective, order),
        lambda: _steps(fold, order, edges),
        fold.digits + (0 if fold.is_whole else 2),
        halving_cost(collective, fold),
    )


def _order(fold: RankDigits) -> tuple[np.ndarray, np.ndarray]:
    """Return the block in each slot, and the slots of each position: at q are the blocks of the group of q's reversed bits."""
    position = np.zeros(fold.size, np.int64)
    for digit in range(fold.digits):
        position |= (np.arange(fold.size) >> digit & 1) << (fold.digits - 1 - digit)
    groups = [np.arange(fold.starts[group], fold.starts[group + 1]) for group in position]
    edges = np.concatenate(([0], np.cumsum([len(group) for group in groups])))
    return np.concatenate(groups), edges


def _layout(collective: Collective, order: np.ndarray) -> Layout:
    slot = np.argsort(order)
    every = (np.arange(collective.p), order)
    own = tuple((slot[rank : rank + 1], np.array([rank])) for rank in range(collective.p))
    return replace(cut(collective), template=order, before=(every,) * collective.p, after=own)


def _steps(fold: RankDigits, order: np.ndarray, edges: np.ndarray) -> Iterator[Step]:
    yield from fold.enter(fold.p)
    yield from halving(fold, range(fold.digits), edges)
    ranks, acting = fold.others()
    if len(ranks):
        yield Step((explicit(Op.SEND, acting, ranks, np.argsort(order)[ranks]),), "unfold")
