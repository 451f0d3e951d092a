"""Ring.

Idea: each rank talks to its two neighbours only; a chunk travels round, gathering contributions, and round again as a
    result. Every rank sends the least that any pairwise all-reduce must.
Cost: all-reduce 2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma; reduce-scatter and all-gather half of it; broadcast and
    reduce (p-2+S) (alpha + n/S beta) in S segments.
Knobs: channels=1, rings side by side, each with its share of every chunk.
Holds: every rank sends to one neighbour; block b is summed in ring order, starting behind its owner.
Figure: none; a building block.
Source: Patarasuk and Yuan, JPDC 69(2), 2009.
Declines: gather, scatter, all-to-all (a ring would carry each block past ranks that do not want it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.ground.knobs import Channels
from ringwright.model.collective import Collective
from ringwright.model.program import Affine, Block, Cost, Op, Program, Step, Term, cut, nothing, turn

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "all-gather")


def ring(collective: Collective, topology: Topology | None = None, *, channels: Channels = 1) -> Program:
    """Return the ring program of an all-reduce, reduce-scatter or all-gather."""
    del topology
    require_op("ring", collective, OPS)
    require_commutative("ring", collective)
    p = collective.p
    if p == 1:
        return nothing("ring", collective, channels=channels)
    parts = channels * (p if collective.op == "all-reduce" else 1)
    rounds = (p - 1) * (2 if collective.op == "all-reduce" else 1)
    largest = float(cut(collective, parts).chunk_bytes.max(initial=0)) * channels
    sent = float(collective.size_bytes) * rounds
    reduced = largest * (p - 1) if collective.reduces else 0.0
    return Program(
        "ring",
        collective,
        cut(collective, parts),
        lambda: _steps(collective, channels),
        rounds,
        Cost((Term(rounds, rounds * largest),), sent, reduced),
        channels=channels,
        knobs={"channels": channels},
    )


def _steps(collective: Collective, channels: int) -> Iterator[Step]:
    p = collective.p
    if collective.op != "all-gather":
        # The finished block r+1 (all-reduce) or r (reduce-scatter) ends at rank r.
        late = 0 if collective.op == "all-reduce" else 1
        for step in range(p - 1):
            yield Step(
                tuple(_round(Op.REDUCE, p, -step - late, c, channels) for c in range(channels)), "reduce-scatter"
            )
    if collective.op != "reduce-scatter":
        early = 1 if collective.op == "all-reduce" else 0
        for step in range(p - 1):
            yield Step(tuple(_round(Op.SEND, p, early - step, c, channels) for c in range(channels)), "all-gather")


def _round(op: Op, p: int, by: int, channel: int, channels: int) -> Block:
    """Every rank r hands chunk (r + by) mod p to its successor."""
    chunk = Affine(((1, by % p, p, channels),), channel)
    return Block(op, (p,), turn(p), turn(p, 1), chunk, channel=channel)
