"""MSCCL XML: a program as thread blocks for MSCCL, RCCL and the Azure scheduler.

A declared program is written as it is; one whose order follows from its data is scheduled first (see ``threadblocks``).
Source: microsoft/msccl (src/graph/topo.cc), Azure/msccl-scheduler (parser.cc): where the two disagree, both are served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

import numpy as np

from ringwright.formats.exports.threadblocks import scheduled
from ringwright.ground.errors import ProgramError, UsageError
from ringwright.model.threadblocks import Schedule
from ringwright.model.threadblocks.msccl import (
    DIALECT,
    MOST_CHANNELS,
    MOST_COUNT,
    MOST_PER_CHANNEL,
    MOST_STEPS,
    MOST_THREADBLOCKS,
    TYPES,
)
from ringwright.model.threadblocks.table import LETTERS, Opcode

if TYPE_CHECKING:
    from ringwright.model.program import Program

EXPORTS = {"msccl-xml": "msccl_xml"}
READER, LOSS = "ringwright.formats.sources.programs.program_files:read_program", ("cost", "root")  # a file says neither
TARGETS = ("msccl", "rccl", "azure")
MOST_NAME = 63
_NAMES = {kind: name for name, kind in TYPES.items()}
_COLLS = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all-to-all": "alltoall",
}


def msccl_xml(
    program: Program,
    *,
    target: str = "msccl",
    window: tuple[int, int] = (0, 0),
    in_place: bool | None = None,
    protocol: str = "",
) -> bytes:
    """Return the file; raise ProgramError where the format cannot carry the program.

    ``window`` is the half-open range of call sizes in bytes that the file is for, (0, 0): all. The two runtimes disagree on
    whether the upper end belongs to it; it is written one byte lower, a size that no call has, so that files whose
    windows touch neither overlap nor leave a gap. ``in_place`` and ``protocol`` (Simple, LL, LL128) are for scheduling.
    """
    if target not in TARGETS:
        raise UsageError(f"'{target}' reads no MSCCL XML", remedy=f"one of: {', '.join(TARGETS)}")
    if not isinstance(program.schedule, Schedule):
        program = scheduled(program, in_place=in_place, protocol=protocol, limits=check_limits)
    schedule = program.schedule
    if (
        not isinstance(schedule, Schedule)
        or schedule.groups
        or int(schedule.code.kind.max(initial=0)) > max(TYPES.values())
    ):
        raise ProgramError(f"{program.name} writes at its peers by itself, which MSCCL XML has no steps for")
    check_limits(program.name, schedule)
    if schedule.dialect == DIALECT:
        attributes = {key: str(value) for key, value in schedule.attributes.items() if isinstance(value, str)}
    else:
        attributes = _attributes(program, schedule, target, window)
    return "\n".join(_lines(schedule, attributes)).encode() + b"\n"


def _attributes(program: Program, schedule: Schedule, target: str, window: tuple[int, int]) -> dict[str, str]:
    coll = _COLLS.get(program.collective.op, "custom")  # a runtime runs it; what it is for is not said
    if target == "azure" and coll == "reduce_scatter":
        coll = "reducescatter"
    in_place = bool(program.knobs.get("in_place"))
    per_rank = program.collective.op in ("all-to-all", "send-recv")
    chunks = program.layout.n_chunks // program.p if per_rank else program.layout.n_chunks
    low, high = window
    return {
        "name": program.name[:MOST_NAME],
        "proto": program.protocol,
        "nchannels": str(program.channels),
        "nchunksperloop": str(chunks),
        "ngpus": str(program.p),
        "coll": coll,
        "inplace": str(int(in_place)),
        "outofplace": str(int(not in_place)),
        "minBytes": str(low),
        "maxBytes": str(high - 1 if high else 1 << 48),
    }


def check_limits(name: str, schedule: Schedule) -> None:
    """Raise ProgramError where a rank has more of something than the runtime holds."""
    blocks, code = schedule.blocks, schedule.code
    steps = np.bincount(code.block, minlength=len(blocks))
    widest = int(code.count.max(initial=0))
    limits = [
        ("thread blocks at a rank", np.bincount(blocks.rank, minlength=1).max(initial=0), MOST_THREADBLOCKS),
        ("steps in a thread block", steps.max(initial=0), MOST_STEPS),
        ("chunks in a step", widest, MOST_COUNT),
        ("channels", blocks.channel.max(initial=-1) + 1, MOST_CHANNELS),
    ]
    for verb, peer in (("sending", blocks.send), ("receiving", blocks.recv)):
        used = peer >= 0
        per_channel = np.bincount(blocks.rank[used] * MOST_CHANNELS + blocks.channel[used] % MOST_CHANNELS, minlength=1)
        limits.append((f"{verb} thread blocks on a channel", per_channel.max(initial=0), MOST_PER_CHANNEL))
    for what, count, most in limits:
        if count > most:
            raise ProgramError(f"{name} needs {count} {what}; a runtime holds {most}", remedy="fewer ranks or parts")


def _lines(schedule: Schedule, attributes: Mapping[str, str]) -> Iterator[str]:
    blocks, code = schedule.blocks, schedule.code
    starts = np.searchsorted(code.block, np.arange(len(blocks) + 1))
    others = schedule.attributes.get("other elements", ())
    yield _tag("algo", attributes, end=">")
    for rank in range(schedule.p):
        sizes = dict(zip((f"{letter}_chunks" for letter in LETTERS), schedule.sizes[rank].tolist(), strict=True))
        yield "  " + _tag("gpu", {"id": rank, **sizes}, end=">")
        for position, tag, kept in others if isinstance(others, tuple) else ():
            if position == rank:
                yield "    " + _tag(tag, dict(kept), end="/>")
        for block in np.flatnonzero(blocks.rank == rank).tolist():
            names = ("id", "send", "recv", "chan")
            fields = (blocks.threadblock, blocks.send, blocks.recv, blocks.channel)
            yield "    " + _tag("tb", {name: int(f[block]) for name, f in zip(names, fields, strict=True)}, end=">")
            for row in range(int(starts[block]), int(starts[block + 1])):
                yield "      " + _tag("step", _step(schedule, row), end="/>")
            yield "    </tb>"
        yield "  </gpu>"
    yield "</algo>"


def _step(schedule: Schedule, row: int) -> dict[str, object]:
    code, dep = schedule.code, int(schedule.code.dep[row])
    _, threadblock, step = schedule.place(dep) if dep >= 0 else (-1, -1, -1)
    return {
        "s": int(code.step[row]),
        "type": _NAMES[Opcode(int(code.kind[row]))],
        "srcbuf": LETTERS[code.src_buffer[row]],
        "srcoff": int(code.src[row]),
        "dstbuf": LETTERS[code.dst_buffer[row]],
        "dstoff": int(code.dst[row]),
        "cnt": int(code.count[row]),
        "depid": threadblock,
        "deps": step,
        "hasdep": int(code.has_dep[row]),
    }


def _tag(name: str, attributes: Mapping[str, object], *, end: str) -> str:
    return f"<{name} " + " ".join(f"{key}={quoteattr(str(value))}" for key, value in attributes.items()) + end
