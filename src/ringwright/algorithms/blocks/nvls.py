"""NVLS: reduction and multicast inside the NVSwitch.

Idea: every rank, or the first ``heads`` ones, heads one chunk. It reads the sum of all ranks' chunks through the switch,
    which adds on the way, and stores it through the switch, which copies it to all. Each link carries the data once
    instead of twice.
Cost: all-reduce 2 alpha + n (h+1)/h beta on a head's link for h heads; reduce-scatter and all-gather one pass each.
Knobs: heads (all ranks; fewer for all-reduce alone, NCCL takes 32 at the most); segments (16 at the most, of 128 KiB at the
    least), so that adding and spreading overlap.
Holds: a rank sends its data once, and a head its own chunk's result once.
Figure: algbw = B p/(p+1) for a link of B (nccl-tests, pull request 239).
Source: NCCL 2.17 and later, src/device/all_reduce.h; the CUDA multicast objects.
Declines: fabrics whose ranks share no aggregating switch, and groups over several of them (see nvls-tree).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.ground.errors import FanInError, UsageError
from ringwright.ground.knobs import Channels, Segments
from ringwright.model.collective import Collective
from ringwright.model.program import Affine, Block, Cost, Op, Program, Step, Term, constant, cut, nothing, turn
from ringwright.model.streams import Stream

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "all-gather")
FABRICS = ("dgx-h100:1",)
MOST_SEGMENTS = 16
SEGMENT_BYTES = 128 << 10
WINDOW = 2  # segments in the switch at once: a rank starts the next when an earlier one has left


def nvls(
    collective: Collective,
    topology: Topology | None = None,
    *,
    heads: Channels | None = None,
    segments: Segments | None = None,
) -> Program:
    """Return the program of a collective inside one switch domain."""
    require_op("nvls", collective, OPS)
    require_commutative("nvls", collective)
    p = collective.p
    if p == 1:
        return nothing("nvls", collective)
    domains = switch_domains(collective, topology)
    if len(domains) > 1:
        raise UsageError("nvls works inside one switch domain", remedy="--algorithm nvls-tree")
    both = collective.op == "all-reduce"
    leading = min(heads or p, p)
    if leading < p and not both:
        raise UsageError(f"every rank heads its own block of {collective.op}", remedy=f"heads={p}")
    size = float(collective.size_bytes)
    pieces = segments or max(1, min(MOST_SEGMENTS, int(size // leading // SEGMENT_BYTES)))
    pieces = min(pieces, elements_of(collective, leading))
    parts = pieces * (leading if collective.n_blocks == 1 else 1)
    layout = cut(collective, parts, copies=2)
    # Up to the switch a rank sends all its data and takes one chunk of sums; on the way down it is the other way round.
    sent = size * (2 * p + 2 if both else p + 1)
    path = float(layout.chunk_bytes.max(initial=0)) * pieces * (leading + 1)
    return Program(
        "nvls",
        collective,
        layout,
        lambda: _steps(collective, leading, pieces),
        2 * (pieces + both),
        Cost((Term(2 if both else 1, path),), sent, is_even=is_even(collective, parts)),
        aggregators=(domains[0][0],),
        streams=(Stream(domains[0][0]),),
        knobs={"segments": pieces} | ({"heads": leading} if leading < p else {}),
    )


def elements_of(collective: Collective, parts: int) -> int:
    """Return the most segments that each of ``parts`` equal parts can be cut into, of one element or more; 1 at the least."""
    return max(1, collective.size_bytes // (parts * collective.unit_bytes))


def _steps(collective: Collective, heads: int, pieces: int) -> Iterator[Step]:
    """Segments follow each other: while one is spread, the next is added. Node p is the switch."""
    both = collective.op == "all-reduce"
    for turn_ in range(pieces + both):
        up: list[Block] = []
        down: list[Block] = []
        if turn_ < pieces and collective.op != "all-gather":
            _add(collective.p, heads, pieces, turn_, up, down)
        following = turn_ - both
        if following >= 0 and collective.op != "reduce-scatter":
            _spread(collective.p, heads, pieces, following, up, down)
        yield Step(tuple(up), "to the switch")
        yield Step(tuple(down), "from the switch")


def _add(p: int, heads: int, pieces: int, segment: int, up: list[Block], down: list[Block]) -> None:
    """Every rank gives its part of every head's chunk; each head takes the sum of its own."""
    switch, rank = constant(p), Affine(((1, 0, p, 1), (0, 0, 1, 0)))
    chunk, there = (Affine(((0, 0, 1, 0), (1, 0, heads, pieces)), at) for at in (segment, segment % WINDOW))
    up.append(Block(Op.CONTRIBUTE, (p, heads), rank, switch, chunk, there))
    taken, mine = (Affine(((1, 0, heads, pieces),), at) for at in (segment % WINDOW, segment))
    down.append(Block(Op.EMIT, (heads,), switch, turn(p), taken, mine))


def _spread(p: int, heads: int, pieces: int, segment: int, up: list[Block], down: list[Block]) -> None:
    """Each head gives its result into the second set of slots, and the switch copies it to all.

    On a channel of its own: a message that also held the next segment's contributions would wait for both.
    """
    switch, second = constant(p), heads * pieces + segment % WINDOW
    mine, there = (Affine(((1, 0, heads, pieces),), at) for at in (segment, second))
    up.append(Block(Op.CONTRIBUTE, (heads,), turn(p), switch, mine, there, channel=1))
    rank, digits = Affine(((1, 0, p, 1), (0, 0, 1, 0))), ((0, 0, 1, 0), (1, 0, heads, pieces))
    held, chunk = Affine(digits, second), Affine(digits, segment)
    down.append(Block(Op.EMIT, (p, heads), switch, rank, held, chunk, channel=1, multicast=True))


def switch_domains(collective: Collective, topology: Topology | None) -> list[tuple[int, list[int]]]:
    """Return (aggregating node, places in the group) per switch domain, in the order of the first member.

    Raises UsageError where the fabric has no aggregating switch, FanInError where a rank is attached to none.
    """
    if topology is None or not topology.aggregators:
        raise UsageError("no switch of this fabric aggregates", remedy="--fabric dgx-h100:1")
    aggregating = np.isin(topology.dst, list(topology.aggregators))
    switch_of = dict(zip(topology.src[aggregating].tolist(), topology.dst[aggregating].tolist(), strict=True))
    domains: dict[int, list[int]] = {}
    for index, rank in enumerate(collective.group):
        if rank not in switch_of:
            raise FanInError(
                f"{topology.label(rank)} is attached to no aggregating switch", remedy="--fabric dgx-h100:1"
            )
        domains.setdefault(switch_of[rank], []).append(index)
    return list(domains.items())
