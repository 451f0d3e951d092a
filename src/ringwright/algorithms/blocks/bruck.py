"""Bruck.

Idea: in round k every rank has the blocks of 2**k neighbours and hands them on to the rank 2**k away, so that any number of
    ranks is done in ceil(lg p) rounds. An all-to-all moves in round k the blocks whose distance has bit k set.
Cost: all-gather ceil(lg p) alpha + (p-1)/p n beta; all-to-all ceil(lg p) (alpha + n/2 beta) for p a power of two, n the bytes
    one rank sends; barrier ceil(lg p) alpha. With radix k: ceil(log_k p) rounds of up to k-1 messages.
Knobs: radix=2.
Holds: no round has a partner more than once; any p, without folding.
Figure: none; a building block.
Source: Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8(11), 1997; the barrier: Hensgen, Finkel, Manber, IJPP 17(1), 1988.
Declines: reductions (a block would be counted more than once; a barrier passes on the names of ranks, of 0 bytes).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import is_even, require_op
from ringwright.algorithms.trees import require_radix
from ringwright.ground.knobs import Radix
from ringwright.model.program import (
    Affine,
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

OPS = ("all-gather", "all-to-all", "barrier")


def bruck(collective: Collective, topology: Topology | None = None, *, radix: Radix = 2) -> Program:
    """Return Bruck's program of an all-gather, all-to-all or barrier (dissemination)."""
    del topology
    require_op("bruck", collective, OPS)
    require_radix("bruck", radix, 2)
    p = collective.p
    if p == 1:
        return nothing("bruck", collective, radix=radix)
    make, cost = {"all-gather": (_gather, _gather_cost), "all-to-all": (_exchange, _exchange_cost)}.get(
        collective.op, (_names, _names_cost)
    )
    layout = _names_layout(collective) if collective.op == "barrier" else cut(collective)
    return Program(
        "bruck",
        collective,
        layout,
        lambda: make(collective, radix),
        len(list(rounds(p, radix))),
        cost(collective, radix),
        knobs={"radix": radix},
    )


def rounds(p: int, radix: int) -> Iterator[tuple[int, list[int]]]:
    """Yield, for each round, how many ranks' blocks a rank has before it, and the distances over which it sends."""
    have = 1
    while have < p:
        yield have, [have * times for times in range(1, radix) if have * times < p]
        have *= radix


def _messages(p: int, radix: int) -> int:
    return sum(len(reaches) for _, reaches in rounds(p, radix))


# --------------------------------------------------------------------------------------------------------- all-gather
def _gather(collective: Collective, radix: int) -> Iterator[Step]:
    p = collective.p
    for have, reaches in rounds(p, radix):
        blocks = [
            Block(Op.SEND, (p,), turn(p), turn(p, -reach), turn(p, away))
            for reach in reaches
            for away in range(min(have, p - reach))
        ]
        yield Step(tuple(blocks), "all-gather")


def _gather_cost(collective: Collective, radix: int) -> Cost:
    p, n = collective.p, float(collective.size_bytes)
    term = Term(_messages(p, radix), n * (p - 1) / p)
    return Cost((term,), n * (p - 1), is_even=is_even(collective, 1))


# --------------------------------------------------------------------------------------------------------- all-to-all
def _exchange(collective: Collective, radix: int) -> Iterator[Step]:
    """Yield the rounds. Before the one of the digit of weight ``have``, the block from s to s + d is at s + (d mod have)."""
    p = collective.p
    rank = np.arange(p)
    for have, reaches in rounds(p, radix):
        blocks = []
        for reach in reaches:
            away = np.arange(p)
            away = away[away // have % radix * have == reach]
            origin = (rank - away[:, None] % have) % p
            chunk = origin * p + (origin + away[:, None]) % p
            holder = np.broadcast_to(rank, chunk.shape).reshape(-1)
            blocks.append(explicit(Op.SEND, holder, (holder + reach) % p, chunk.reshape(-1)))
        yield Step(tuple(blocks), "all-to-all")


def _exchange_cost(collective: Collective, radix: int) -> Cost:
    p = collective.p
    hops = np.array([_nonzero_digits(away, radix) for away in range(p)])
    pairs = collective.block_bytes.reshape(-1, p)
    if len(pairs) == 1:  # all ranks have the same row: each of its blocks goes every distance once
        sent = int(pairs.sum()) * int(hops.sum())
    else:
        rank = np.arange(p)
        sent = int((pairs * hops[(rank - rank[:, None]) % p]).sum())
    share = collective.size_bytes / p * float(hops.sum())
    return Cost((Term(_messages(p, radix), share),), float(sent), is_even=is_even(collective, 1))


def _nonzero_digits(number: int, radix: int) -> int:
    count = 0
    while number:
        number, digit = divmod(number, radix)
        count += digit > 0
    return count


# ------------------------------------------------------------------------------------------------------------ barrier
def _names_layout(collective: Collective) -> Layout:
    """Return the slots: 0 collects all that have arrived, 1 + a has the name of the rank a places before."""
    slots = collective.p + 1
    held = (np.array([0, 1]), np.array([0, 0]))
    template = np.zeros(slots, np.int64)
    return Layout(1, collective.block_bytes, 1, slots, template, (held,) * collective.p)


def _names(collective: Collective, radix: int) -> Iterator[Step]:
    p = collective.p
    for have, reaches in rounds(p, radix):
        blocks: list[Block] = []
        for reach in reaches:
            count = min(have, p - reach)
            names = Affine(((0, 0, 1, 0), (1, 0, count, 1)), 1)
            ends = ((p, count), turn(p), turn(p, reach), names)
            blocks += [Block(Op.SEND, *ends, names.scaled(1, reach)), Block(Op.REDUCE, *ends, constant(0))]
        yield Step(tuple(blocks), "barrier")


def _names_cost(collective: Collective, radix: int) -> Cost:
    p, n = collective.p, float(collective.size_bytes)
    return Cost((Term(_messages(p, radix), 2 * (p - 1) * n),), 2 * p * (p - 1) * n)
