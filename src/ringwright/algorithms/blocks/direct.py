"""Direct.

Idea: every rank sends each of the others what is meant for it, straight, many at a time.
Cost: all-gather, reduce-scatter, all-to-all ceil((p-1)/w) rounds of w messages: alpha each round, (p-1)/p n beta in all.
Knobs: window=0 messages at once (all; Open MPI's linear_sync and MPICH's scattered limit them, to 32 in MPICH).
Holds: no byte travels further than once; every rank starts with its next neighbour, so that no target is hit by all.
Figure: none; a building block.
Source: open-mpi/ompi coll/tuned algorithms 1 and 4 of alltoall, 8 of allgather; pmodels/mpich ``scattered``.
Declines: reductions that keep the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.errors import UsageError
from ringwright.program import Block, Cost, Op, Program, Step, Term, cut, explicit, nothing, turn

if TYPE_CHECKING:
    from ringwright.collective import Collective
    from ringwright.topology import Topology

OPS = ("all-gather", "reduce-scatter", "all-to-all")


def direct(collective: Collective, topology: Topology | None = None, *, window: int = 0) -> Program:
    """Return the program in which all pairs talk to each other, ``window`` targets of a rank at a time (0: all)."""
    del topology
    require_op("direct", collective, OPS)
    require_commutative("direct", collective, "linear, butterfly or recursive_doubling")
    if window < 0:
        raise UsageError(f"a window of {window} messages", remedy="0 sends all at once")
    if collective.p == 1:
        return nothing("direct", collective, window=window)
    peers = collective.p - 1
    rounds = -(-peers // (window or peers))
    return Program(
        "direct", collective, cut(collective), lambda: _steps(collective, window or peers), rounds,
        exchange_cost(collective, rounds), knobs={"window": window},
    )  # fmt: skip


def exchange_cost(collective: Collective, rounds: int) -> Cost:
    """Return what it costs when every pair talks once, in so many rounds."""
    p = collective.p
    share = collective.size_bytes * (p - 1) / p
    sent = float(collective.size_bytes) * (p - 1)
    if collective.op == "all-to-all":
        pairs = np.broadcast_to(collective.block_bytes.reshape(-1, p), (p, p))
        sent = float(pairs.sum() - np.trace(pairs))
    return Cost((Term(rounds, share),), sent, share if collective.reduces else 0.0, is_even=is_even(collective, 1))


def _steps(collective: Collective, window: int) -> Iterator[Step]:
    for first in range(1, collective.p, window):
        ways = range(first, min(first + window, collective.p))
        yield Step(tuple(towards(collective, by) for by in ways), collective.op)


def towards(collective: Collective, by: int) -> Block:
    """Return what every rank sends to the rank ``by`` behind it."""
    p = collective.p
    if collective.op == "all-gather":
        return Block(Op.SEND, (p,), turn(p), turn(p, by), turn(p))
    if collective.op == "reduce-scatter":
        return Block(Op.REDUCE, (p,), turn(p), turn(p, by), turn(p, by))
    src = np.arange(p)
    dst = (src + by) % p
    return explicit(Op.SEND, src, dst, src * p + dst)
