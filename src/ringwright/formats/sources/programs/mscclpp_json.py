"""MSCCL++ execution plans (JSON), in the dialect of the executor's plans and in the older one of its test files.

One-sided: a put needs nothing at the peer, and is seen there after a wait for the signal that follows it; packets carry
their own flag and are waited for by who reads them. One turn of each pipeline is read. Source: microsoft/mscclpp
(src/core/executor/execution_plan.cc, docs/dsl/concepts.md). The field set before that (``inputChunks``) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ringwright.formats.sources.findings import MOST_RANKS, MOST_SLOTS, MOST_TOUCHED, FileFindings
from ringwright.formats.sources.programs.msccl_xml import call_size
from ringwright.formats.sources.programs.mscclpp_lower import Lowering, Marks, RankLowering, SwitchGroup, flatten
from ringwright.formats.sources.programs.mscclpp_plan import ExecutionPlan
from ringwright.ground.errors import InputError
from ringwright.model.threadblocks import Blocks, Code, Schedule, arrange, declared
from ringwright.model.threadblocks.mscclpp import COLLECTIVES, DIALECT, PROTOCOLS
from ringwright.model.threadblocks.table import SWITCHED

if TYPE_CHECKING:
    from ringwright.model.program import Program

MOST_BYTES = 32 << 20
MOST_GROUP = 64  # thread blocks in a group, and slices in all, that a chunk is cut into
MOST_BLOCKS = 1024  # thread blocks of a rank
SCOPE = "scope"  # the rule of what was read, and holds nothing that can be judged


def read_mscclpp_json(path: str | Path, *, size_bytes: int | None = None, dtype: str = "float32") -> Program:
    """Return the program of a plan; raise ProgramError naming the first broken rule, the rank and the operation.

    ``size_bytes`` is the size of the call (of the longer buffer), a multiple of the plan's chunks; without it the smallest
    that the plan admits. What only shows when the program runs is left to ``validity``.
    """
    findings = FileFindings(path)
    program = parse_mscclpp_json(path, findings, size_bytes=size_bytes, dtype=dtype)
    if program is None:
        raise findings.error()
    return program


def parse_mscclpp_json(
    path: str | Path, findings: FileFindings, *, size_bytes: int | None = None, dtype: str = "float32"
) -> Program | None:
    """Return the program, or None with all that is wrong in ``findings``."""
    raw = _decode(path, findings)
    if raw is None:
        return None
    try:
        plan = msgspec.convert(raw, ExecutionPlan)
    except (msgspec.ValidationError, RecursionError) as error:
        old = "inputChunks" in str(raw.get("gpus", ""))[:4096]
        hint = " (a field set older than the ones this reader knows)" if old else ""
        findings.add("json", f"{error}{hint}")
        return None
    _check_plan(plan, findings)
    if findings.errors:
        return None
    return _program(plan, raw, findings, size_bytes, dtype)


def _decode(path: str | Path, findings: FileFindings) -> dict[str, Any] | None:
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            findings.add("json", f"larger than {MOST_BYTES >> 20} MiB")
            return None
        raw = msgspec.json.decode(Path(path).read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        findings.add("json", f"not JSON: {error}")
        return None
    if not isinstance(raw, dict):
        findings.add("json", "a plan is an object")
        return None
    return raw


# ------------------------------------------------------------------------------------------------- rules of the plan
def _check_plan(plan: ExecutionPlan, findings: FileFindings) -> None:
    """Check what concerns a whole rank: ids, numbers of chunks, groups."""
    if plan.protocol not in PROTOCOLS:
        findings.add("attribute", f"protocol is '{plan.protocol[:40]}', not one of {', '.join(PROTOCOLS)}")
    if plan.collective not in COLLECTIVES:
        text = f"collective '{plan.collective[:40]}': its result is not checked"
        findings.add("result", text, severity="warning")
    if plan.min_message_size > plan.max_message_size:
        findings.add("window", "min_message_size is above max_message_size")
    if not 1 <= len(plan.gpus) <= MOST_RANKS:
        findings.add("gpus", f"{len(plan.gpus)} gpus")
        return
    if not any(gpu.input_chunks or gpu.output_chunks for gpu in plan.gpus):
        text = "out of scope because no rank has input or output chunks: no result to check"
        findings.add(SCOPE, text)
        return
    whole = {_whole(plan, rank) for rank in range(len(plan.gpus))}
    if plan.collective in COLLECTIVES and len(whole) > 1:
        findings.add("chunks", "ranks cut the data into different numbers of chunks")
    for rank in range(len(plan.gpus)):
        _check_gpu(plan, rank, findings)
        _check_chunks(plan, rank, findings)


def _check_gpu(plan: ExecutionPlan, rank: int, findings: FileFindings) -> None:
    gpu, p = plan.gpus[rank], len(plan.gpus)
    if gpu.id != rank:
        findings.add("gpus", f"gpu {gpu.id} stands at place {rank}", rank=rank)
    if min(gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks) < 0 or not gpu.input_chunks + gpu.output_chunks:
        findings.add("chunks", "no chunks, or fewer than none", rank=rank)
    if [block.id for block in gpu.threadblocks] != list(range(len(gpu.threadblocks))):
        findings.add("limits", "thread blocks are not numbered from 0 on", rank=rank)
    if len(gpu.threadblocks) > MOST_BLOCKS:
        findings.add("limits", f"more than {MOST_BLOCKS} thread blocks", rank=rank)
    for channel in gpu.channels:
        members = [member for group in channel.rank_groups for member in group.ranks]
        for peer in [each for each in channel.connected_to if each == rank or not 0 <= each < p]:
            findings.add("peer", f"a channel to rank {peer}", rank=rank)
        for peer in [each for each in members if not 0 <= each < p]:
            findings.add("peer", f"a switch channel with rank {peer}", rank=rank)
        if any(len(set(group.ranks)) != len(group.ranks) or not group.ranks for group in channel.rank_groups):
            findings.add("peer", "a switch channel names a rank twice, or none", rank=rank)


def _whole(plan: ExecutionPlan, rank: int) -> int:
    """Return into how many chunks a rank cuts the longer of input and output."""
    gpu, p, op = plan.gpus[rank], len(plan.gpus), COLLECTIVES.get(plan.collective)
    into, out = gpu.input_chunks, gpu.output_chunks
    return max(into * p if op == "all-gather" else into, out * p if op == "reduce-scatter" else out)


def _check_chunks(plan: ExecutionPlan, rank: int, findings: FileFindings) -> None:
    gpu, p, op = plan.gpus[rank], len(plan.gpus), COLLECTIVES.get(plan.collective)
    whole = _whole(plan, rank)
    if op is None:
        return
    if op in ("all-gather", "reduce-scatter", "all-to-all") and whole % p:
        findings.add("chunks", f"{whole} chunks over {p} ranks", rank=rank)
    into, out = (whole // p if op == "all-gather" else whole), (whole // p if op == "reduce-scatter" else whole)
    for name, chunks, wanted in (("input", gpu.input_chunks, into), ("output", gpu.output_chunks, out)):
        if chunks not in (0, wanted):
            findings.add("chunks", f"{name}_chunks is {chunks}, not {wanted}", rank=rank)


# ------------------------------------------------------------------------------------------------------- the program
def _program(
    plan: ExecutionPlan, raw: dict[str, Any], findings: FileFindings, size_bytes: int | None, dtype: str
) -> Program | None:
    """Return the program of a plan whose ranks are in order."""
    import numpy as np

    slices = _slices(plan, findings)
    sizes = [[gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks] for gpu in plan.gpus]
    p, op = len(plan.gpus), COLLECTIVES.get(plan.collective, "")
    chunks = _whole(plan, 0)
    if slices * p * (max(sum(row) for row in sizes) + 2 * chunks) > MOST_SLOTS:
        findings.add("limits", f"more than {MOST_SLOTS:,} chunks in all buffers")
    if findings.errors:
        return None
    blocks, rows, marks, groups, further = _lower(plan, sizes, slices, findings)
    if sum(row[7] * (len(groups[row[10]][0]) if row[2] in SWITCHED else 1) for row in rows) > MOST_TOUCHED:
        findings.add("limits", f"more than {MOST_TOUCHED:,} chunks moved in all")
    if findings.errors:
        return None
    fine = np.array(sizes, np.int64) * slices
    whole = chunks * slices if op else p * max(int(fine[:, :2].max()), 1)
    size = call_size(whole, size_bytes, min(plan.min_message_size, 1 << 40) if op else 0)
    placed = arrange(op, fine, chunks * slices, in_place=plan.inplace, size_bytes=size, dtype=dtype)
    schedule = Schedule(
        Blocks.of(blocks),
        Code.of(rows) if rows else Code.of([]),
        placed.bases,
        fine,
        1,
        initial=tuple(marks.initial),
        groups=tuple(groups),
        further=tuple(further),
        dialect=DIALECT,
        attributes={"plan": raw},
    )
    knobs = {"coll": plan.collective, "in_place": plan.inplace, "slices": slices}
    return declared(plan.name or Path(findings.path).stem, placed, schedule, protocol=plan.protocol, knobs=knobs)


def _slices(plan: ExecutionPlan, findings: FileFindings) -> int:
    """Return into how many slices each chunk is cut, so that every thread block of a group has whole ones."""
    slices = 1
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            for operation in flatten(block.ops):
                size = operation.tbg_info.tbg_size if operation.tbg_info is not None else 1
                if 1 <= size <= MOST_GROUP:
                    slices = math.lcm(slices, size)
                if not 1 <= size <= MOST_GROUP or slices > MOST_GROUP:
                    findings.add("limits", f"a group of {size} thread blocks", rank=gpu.id)
                    return 1
    return slices


Lowered = tuple[list[tuple[int, int, int, int, int]], list[list[int]], Marks, list[SwitchGroup], list[tuple[int, int]]]


def _lower(plan: ExecutionPlan, sizes: list[list[int]], slices: int, findings: FileFindings) -> Lowered:
    """Return thread blocks, instructions, marks, switch groups and further order of all ranks."""
    marks, numbers = Marks(), dict[SwitchGroup, int]()
    ranks = [RankLowering(gpu, numbers) for gpu in plan.gpus]
    groups = list(numbers)
    blocks: list[tuple[int, int, int, int, int]] = []
    rows: list[list[int]] = []
    further: list[tuple[int, int]] = []
    for gpu, rank in zip(plan.gpus, ranks, strict=True):
        barriers: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for block in gpu.threadblocks:
            lowering = Lowering(rank, block, marks, groups, sizes, slices)
            lowering.run(findings)
            turns: dict[int, int] = {}
            for barrier, expected, row in lowering.barriers:
                turns[barrier] = turns.get(barrier, 0) + 1
                barriers.setdefault((barrier, turns[barrier]), []).append((expected, len(rows) + row))
            rows += [[len(blocks), *row] for row in lowering.rows]
            blocks.append((gpu.id, block.id, -1, -1, 0))
        for (barrier, _), members in barriers.items():
            if any(expected != len(members) for expected, _ in members):
                text = f"barrier {barrier} is for {members[0][0]} thread blocks, and {len(members)} come"
                findings.add("match", text, rank=gpu.id)
            further += _meet([row for _, row in members])
    return blocks, rows, marks, groups, further


def _meet(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the order of a barrier: all first halves before one second half, that one before all others."""
    hub = rows[0] + 1
    for row in rows[1:]:
        yield row, hub
        yield hub, row + 1
