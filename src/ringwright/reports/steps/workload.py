"""A model's parameters, its operations, the collectives of one of its ranks and the memory of each, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.steps import memory

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.jobs.workload_document import RequestOfRank, WorkloadFigures

QUANTILES = ("p50", "p95", "p99")
COLUMNS = ("phase", "layer", "role", "op", "ranks", "count", "size", "in all")


def write(result: WorkloadFigures, file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.workload/1``."""
    out = layout.console(file, width=width)
    where = f"{result.gpus:,} GPUs, {result.parallel}" if result.gpus > 1 else "one GPU"
    if result.too_large:
        layout.line(out, f"does not fit: {result.too_large}", style="bold yellow", indent=0)
    layout.line(out, f"workload: {result.model} on {where}", style="bold", indent=0)
    layout.line(out, f"parameters  {result.parameters:,}")
    if result.active_parameters != result.parameters:
        layout.line(out, f"active      {result.active_parameters:,} per token")
    layout.line(out, f"operations  {result.flops_per_token:.4g} per {result.unit}, forward and backward")
    _requests(out, result)
    memory.stages(out, result.memory, result.device_memory_bytes)
    layout.heading(out, "Assumed")
    for each in result.assumptions:
        layout.line(out, each)


def _requests(out: Console, result: WorkloadFigures) -> None:
    """Print what one rank asks for, phase by phase, and how large its requests are."""
    once = "in an iteration" if result.mode == "training" else "in a pass"
    who = "one rank of each stage" if result.all_stages else f"one rank of stage {result.stage}"
    layout.heading(out, "Collectives", f"what {who} issues {once}")
    if not result.requests:
        layout.line(out, "none")
        return
    _table(out, result.requests, every_stage=result.all_stages)
    layout.heading(out, "Request sizes", "half, 95 % and 99 % of the requests are no larger")
    sizes = [
        [
            row.mode,
            row.role,
            row.op,
            f"{row.count:,}",
            *map(format_size, (row.p50_bytes, row.p95_bytes, row.p99_bytes)),
        ]
        for row in result.request_sizes
    ]
    layout.table(out, ["mode", "role", "op", "count", *QUANTILES], sizes, left=("mode", "role", "op"))


def _table(out: Console, rows: Sequence[RequestOfRank], *, every_stage: bool) -> None:
    """Print the requests, with their stages where there are several; their sums stand by themselves where they do not fit."""
    cells = [
        [
            *([stages] if every_stage else []),
            row.phase,
            row.layer or ("other stage" if row.role == "pp" else "several"),
            row.role,
            row.op,
            f"{row.group_ranks:,}",
            f"{row.count:,}",
            format_size(row.bytes),
            format_size(row.count * row.bytes),
        ]
        for stages, row in _alike(rows)
    ]
    columns = [*(["stage"] if every_stage else []), *COLUMNS]
    natural = sum(max(map(len, column)) for column in zip(columns, *cells, strict=True))
    left = ("stage", "phase", "layer", "role", "op")
    if natural + layout.INDENT * len(columns) <= out.width:
        layout.table(out, columns, cells, left=left)
        return
    layout.table(out, columns[:-1], [each[:-1] for each in cells], left=left)
    told = [index for index, name in enumerate(columns) if name in ("role", "op", "count", "size", "in all")]
    layout.line(out, "in all:", style="dim")
    layout.table(out, [columns[at] for at in told], [[each[at] for at in told] for each in cells], left=left)


def _alike(rows: Sequence[RequestOfRank]) -> list[tuple[str, RequestOfRank]]:
    """Return the rows with their stages, those of stages that ask for the same as one: ``1-14``."""
    by_stage: dict[int, list[RequestOfRank]] = {}
    for row in rows:
        by_stage.setdefault(row.stage, []).append(row)
    groups: list[list[int]] = []
    for stage, mine in by_stage.items():
        before = groups[-1] if groups else []
        if before and _plain(by_stage[before[0]]) == _plain(mine):
            before.append(stage)
        else:
            groups.append([stage])
    return [(_span(group), row) for group in groups for row in by_stage[group[0]]]


def _plain(rows: Sequence[RequestOfRank]) -> list[RequestOfRank]:
    return [replace(row, stage=0) for row in rows]


def _span(stages: Sequence[int]) -> str:
    return f"{stages[0]}" if len(stages) == 1 else f"{stages[0]}-{stages[-1]}"
