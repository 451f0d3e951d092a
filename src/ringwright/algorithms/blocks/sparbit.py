"""Sparbit.

Idea: every block goes down a binomial tree of its own, the farthest send first, and all p trees at once: each round halves
    the distance and doubles the blocks that a rank sends, which lie in stripes.
Cost: ceil(lg p) alpha + (p-1)/p n beta.
Knobs: none.
Holds: any p, without folding; most bytes go to the nearest ranks (Bruck's go to the farthest).
Figure: 34 % faster than the best of four others on average over its wins (abstract; from memory, unconfirmed).
Source: Loch, Koslovski: Sparbit, a new logarithmic-cost and data locality-aware MPI Allgather, 2021; open-mpi/ompi
    coll/tuned algorithm 7 of allgather.
Declines: everything but all-gather.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms.offers import is_even, require_op
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, nothing, turn

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-gather",)


def sparbit(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the Sparbit program of an all-gather."""
    del topology
    require_op("sparbit", collective, OPS)
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing("sparbit", collective)
    rounds = (p - 1).bit_length()
    return Program(
        "sparbit",
        collective,
        cut(collective),
        lambda: _steps(p),
        rounds,
        Cost((Term(rounds, n * (p - 1) / p),), n * (p - 1), is_even=is_even(collective, 1)),
    )


def _steps(p: int) -> Iterator[Step]:
    reach = 1 << (p - 1).bit_length() - 1
    while reach:
        # The ranks at multiples of 2 * reach from a block's owner have it; each sends it to the rank ``reach`` further.
        stripes = range(0, p - reach, 2 * reach)
        blocks = [Block(Op.SEND, (p,), turn(p), turn(p, reach), turn(p, -behind)) for behind in stripes]
        yield Step(tuple(blocks), "all-gather")
        reach //= 2
