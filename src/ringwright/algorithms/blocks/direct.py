"""Direct.

Idea: every rank sends each of the others what is meant for it, straight, many at a time.
Cost: all-gather, reduce-scatter, all-to-all ceil((p-1)/w) rounds of w messages: alpha each round, (p-1)/p n beta in all.
Knobs: window=0 messages at once (all; Open MPI's linear_sync and MPICH's scattered limit them, to 32 in MPICH).
Holds: no byte travels further than once; every rank starts with its next neighbour, so that no target is hit by all. With a
    window of w a rank has w slots for what comes in, and a message waits until the one before it has been copied out.
Figure: none; a building block.
Source: open-mpi/ompi coll/tuned algorithms 1 and 4 of alltoall, 8 of allgather; pmodels/mpich ``scattered``.
Declines: reductions that keep the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range
from ringwright.model.program import (
    Block,
    Cost,
    Layout,
    Op,
    Program,
    Step,
    Term,
    constant,
    cut,
    explicit,
    nothing,
    turn,
)

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-gather", "reduce-scatter", "all-to-all")


def direct(
    collective: Collective, topology: Topology | None = None, *, window: Annotated[int, Range(0, 65536)] = 0
) -> Program:
    """Return the program in which all pairs talk to each other, ``window`` targets of a rank at a time (0: all)."""
    del topology
    require_op("direct", collective, OPS)
    require_commutative("direct", collective, "linear, butterfly or recursive_doubling")
    if window < 0:
        raise UsageError(f"a window of {window} messages is negative", remedy="0 sends all at once")
    if collective.p == 1:
        return nothing("direct", collective, window=window)
    return in_rounds("direct", collective, lambda by: towards(collective, by), window)


# ----------------------------------------------------------------------------------------------------------- in rounds
def in_rounds(
    name: str, collective: Collective, towards: Callable[[int], Block], window: int, **knobs: object
) -> Program:
    """Return the program of p-1 exchanges ``towards(1)``, ``towards(2)``, ..., ``window`` of them a round (0: all)."""
    peers = collective.p - 1
    width = min(window or peers, peers)
    rounds = -(-peers // width)
    waits = rounds > 1 and not collective.reduces  # a reduction waits anyway: all add to one block
    return Program(
        name,
        collective,
        _places(collective, width) if waits else cut(collective),
        lambda: _steps(collective, towards, width, waits),
        rounds + waits,
        _cost(collective, rounds),
        knobs={"window": window, **knobs},
    )


def _places(collective: Collective, width: int) -> Layout:
    """Return the layout with ``width`` further slots, each as large as the largest block."""
    plain = cut(collective)
    largest = int(np.argmax(plain.chunk_bytes))
    template = np.concatenate((np.arange(plain.n_chunks), np.full(width, largest)))
    return replace(plain, n_slots=plain.n_chunks + width, template=template)


def _cost(collective: Collective, rounds: int) -> Cost:
    p = collective.p
    share = collective.size_bytes * (p - 1) / p
    sent = float(collective.size_bytes) * (p - 1)
    if collective.op == "all-to-all":
        pairs = np.broadcast_to(collective.block_bytes.reshape(-1, p), (p, p))
        sent = float(pairs.sum() - np.trace(pairs))
    return Cost((Term(rounds, share),), sent, share if collective.reduces else 0.0, is_even=is_even(collective, 1))


def _steps(collective: Collective, towards: Callable[[int], Block], width: int, waits: bool) -> Iterator[Step]:
    arrived: list[Block] = []
    for first in range(1, collective.p, width):
        blocks = [towards(by) for by in range(first, min(first + width, collective.p))]
        if not waits:
            yield Step(tuple(blocks), collective.op)
            continue
        slots = [constant(collective.n_blocks + index) for index in range(len(blocks))]
        coming = [replace(block, to=slot) for block, slot in zip(blocks, slots, strict=True)]
        yield Step((*arrived, *coming), collective.op)
        # What a round brought is copied to its place while the next round is under way.
        arrived = [
            Block(Op.COPY, block.shape, block.dst, block.dst, slot, block.chunk)
            for block, slot in zip(blocks, slots, strict=True)
        ]
    if arrived:
        yield Step(tuple(arrived), "put away")


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
