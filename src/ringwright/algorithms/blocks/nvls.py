"""NVLS: reduction and multicast inside the NVSwitch.

Idea: every rank heads one chunk. It reads the sum of all ranks' chunks through the switch, which adds on the way, and stores it
    through the switch, which copies it to all. Each link carries the data once instead of twice.
Cost: all-reduce 2 alpha + n (p+1)/p beta on a rank's link; reduce-scatter and all-gather one pass each.
Knobs: none.
Holds: a rank sends its data once, and its own chunk's result once.
Figure: algbw = B p/(p+1) for a link of B (nccl-tests, pull request 239).
Source: NCCL 2.17 and later, src/device/all_reduce.h; the CUDA multicast objects.
Declines: fabrics whose ranks share no aggregating switch, and groups over several of them (see nvls-tree).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.collective import Collective
from ringwright.errors import UsageError
from ringwright.program import Affine, Block, Cost, Op, Program, Step, Term, constant, cut, nothing, turn

if TYPE_CHECKING:
    from ringwright.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "all-gather")


def nvls(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the program of a collective inside one switch domain."""
    if collective.op not in OPS:
        raise UsageError(f"nvls does no {collective.op}", remedy=f"one of: {', '.join(OPS)}")
    p = collective.p
    if p == 1:
        return nothing("nvls", collective)
    domains = switch_domains(collective, topology)
    if len(domains) > 1:
        raise UsageError("nvls works inside one switch domain", remedy="--algorithm nvls-tree")
    halves = 2 if collective.op == "all-reduce" else 1
    chunk = float(cut(collective, p if collective.n_blocks == 1 else 1).chunk_bytes.max(initial=0))
    size = float(collective.size_bytes)
    # A contribution of everything and a result of one chunk on the way up; the other way round on the way down.
    sent = {"all-reduce": size * (2 * p + 2), "reduce-scatter": size * (p + 1), "all-gather": size * (p + 1)}[
        collective.op
    ]
    layout = cut(collective, p if collective.n_blocks == 1 else 1, copies=2)
    path = (Term(halves, chunk * (p + 1)),)
    return Program(
        "nvls",
        collective,
        layout,
        lambda: _steps(collective),
        2 * halves,
        Cost(path, sent),
        aggregators=(domains[0][0],),
    )


def _steps(collective: Collective) -> Iterator[Step]:
    """Node p is the switch; its second set of slots holds results on their way to all."""
    p = collective.p
    here, switch, spread = turn(p), constant(p), Affine(((1, 0, p, 1), (0, 0, 1, 0)))
    every, second = Affine(((0, 0, 1, 0), (1, 0, p, 1))), Affine(((1, 0, p, 1),), p)
    if collective.op != "all-gather":
        yield Step((Block(Op.CONTRIBUTE, (p, p), spread, switch, every),), "reduce")
        yield Step((Block(Op.EMIT, (p,), switch, here, here),), "reduce")
    if collective.op != "reduce-scatter":
        copies = Affine(((1, 0, p, 1),), p)
        yield Step((Block(Op.CONTRIBUTE, (p,), here, switch, here, second),), "multicast")
        chunk = Affine(((0, 0, 1, 0), *copies.digits), p)
        yield Step((Block(Op.EMIT, (p, p), switch, spread, chunk, every, multicast=True),), "multicast")


def switch_domains(collective: Collective, topology: Topology | None) -> list[tuple[int, list[int]]]:
    """Return (aggregating node, places in the group) per switch domain, in the order of the first member.

    Raises UsageError where a rank hangs on no aggregating switch.
    """
    if topology is None or not topology.aggregators:
        raise UsageError("no switch of this fabric aggregates", remedy="--fabric dgx-h100:1")
    aggregating = np.isin(topology.dst, list(topology.aggregators))
    switch_of = dict(zip(topology.src[aggregating].tolist(), topology.dst[aggregating].tolist(), strict=True))
    domains: dict[int, list[int]] = {}
    for place, rank in enumerate(collective.group):
        if rank not in switch_of:
            raise UsageError(f"{topology.label(rank)} hangs on no aggregating switch", remedy="--fabric dgx-h100:1")
        domains.setdefault(switch_of[rank], []).append(place)
    return list(domains.items())
