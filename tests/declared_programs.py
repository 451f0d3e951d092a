"""What tests of program files share: samples, running, comparing, editing XML by attribute."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ringwright.formats.sources.programs.program_files import verify_file
from ringwright.model import interpreter
from ringwright.model.program import Program
from ringwright.model.threadblocks import Schedule

MSCCL = (
    "azure-ncv4-ag_hier_4_LL",
    "azure-ncv4-ag_hier_4_Simple",
    "azure-ncv4-ar_hier_12_Simple",
    "azure-ncv4-ar_tree_12_LL",
    "azure-ndv4-a2a2ll",
    "azure-ndv4-a2a4ll",
    "azure-ndv4-ag-16m",
    "azure-ndv4-ag-1k-512k",
    "azure-ndv4-ag-1m",
    "azure-ndv4-ag-32m-1g",
    "azure-ndv4-ap2ll",
    "azure-ndv4-r48ll",
    "azure-ndv4-r48ll128",
    "rccl-alltoall-8n-0-9kb",
    "rccl-alltoall-8n-190kb-512kb",
    "teccl-amd_32",
)
MSCCLPP = (
    "execfile-allreduce",
    "execfile-allreduce_packet",
    "execfile-allreduce_pipeline",
    "reduce",
    "reduce_nvls",
    "reduce_nvls_pipeline",
    "reduce_pack",
    "reduce_pack_tbg",
    "reduce_tbg",
    "transfer_pack",
    "transfer_pack_tbg",
)


def assert_result(program: Program) -> None:
    """The interpreter's result of a program is NumPy's."""
    given = interpreter.inputs(program.collective)
    found, wanted = interpreter.run(program, given), interpreter.expected(program.collective, given)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.keys() == theirs.keys()
        for block, values in theirs.items():
            np.testing.assert_array_equal(ours[block], values)


def assert_same_lanes(one: Program, other: Program) -> None:
    """Both programs have the same thread blocks, instructions, buffers and attributes."""
    assert isinstance(one.schedule, Schedule)
    assert isinstance(other.schedule, Schedule)
    assert dict(one.schedule.attributes) == dict(other.schedule.attributes)
    for table in ("blocks", "code"):
        for field in dataclasses.fields(getattr(one.schedule, table)):
            ours, theirs = (getattr(getattr(each.schedule, table), field.name) for each in (one, other))
            np.testing.assert_array_equal(ours, theirs, field.name)
    np.testing.assert_array_equal(one.schedule.bases, other.schedule.bases)
    np.testing.assert_array_equal(one.schedule.sizes, other.schedule.sizes)
    assert (one.schedule.initial, one.schedule.groups, one.schedule.further) == (
        other.schedule.initial,
        other.schedule.groups,
        other.schedule.further,
    )


def put(folder: Path, text: str | bytes, name: str = "program") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def verdict(folder: Path, text: str | bytes) -> dict[str, Any]:
    return verify_file(put(folder, text))


def rules(report: dict[str, Any]) -> set[str]:
    return {error["rule"] for error in report["errors"]}


# --------------------------------------------------------------------------------------------------------- XML by hand
def step(
    kind: str, src: str = "i0", dst: str = "i0", cnt: int = 1, dep: tuple[int, int] = (-1, -1), has: int = 0
) -> str:
    return (
        f'type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" dstoff="{dst[1:]}" cnt="{cnt}"'
        f' depid="{dep[0]}" deps="{dep[1]}" hasdep="{has}"/>'
    )


def xml(gpus: list[list[tuple[int, int, list[str]]]], chunks: int = 2, scratch: int = 2, **attributes: object) -> str:
    """Return a file of gpus, each a list of thread blocks (send, recv, steps), on channel 0."""
    named = {
        "name": "t",
        "proto": "Simple",
        "nchannels": 1,
        "nchunksperloop": chunks,
        "ngpus": len(gpus),
        "coll": "allreduce",
        "inplace": 1,
        "outofplace": 0,
        "minBytes": 0,
        "maxBytes": 0,
        **attributes,
    }
    lines = ["<algo " + " ".join(f'{key}="{value}"' for key, value in named.items()) + ">"]
    for rank, blocks in enumerate(gpus):
        lines.append(f'<gpu id="{rank}" i_chunks="{chunks}" o_chunks="0" s_chunks="{scratch}">')
        for number, (send, recv, steps) in enumerate(blocks):
            lines.append(f'<tb id="{number}" send="{send}" recv="{recv}" chan="0">')
            lines += [f'<step s="{place}" {text}' for place, text in enumerate(steps)]
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def edit(text: str, pattern: str, change: Callable[[re.Match[str]], str] | str, which: int = 0) -> str:
    """Replace the ``which``-th match of a pattern."""
    match = list(re.finditer(pattern, text))[which]
    new = change if isinstance(change, str) else change(match)
    return text[: match.start()] + new + text[match.end() :]
