"""How a job's axes lie on a machine, the fastest step first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TextIO

from ringwright.jobs.placed_document import PlacedStep, PlacedSteps
from ringwright.reports import layout
from ringwright.reports.steps.jobs import fault_lines, likely, milliseconds


def write(result: PlacedSteps, file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.placements/1``."""
    out = layout.console(file, width=width)
    rows, axes = result.rows, list(result.mesh)
    form = " x ".join(f"{name} {size}" for name, size in result.levels.items())
    layout.line(out, f"placements: {result.workload} on {result.fabric}, {form}", style="bold", indent=0)
    for line in fault_lines(result.asked, [replace(row, policy=result.policy) for row in rows[:1]]):
        layout.line(out, line, style="yellow", indent=0)
    layout.heading(
        out, "Time of a step in ms", f"means over ranks, policy {result.policy}; each axis by the levels that cut it"
    )
    table = [
        [
            f"{at}{' as numbered' if row.as_numbered else ''}",
            *(" x ".join(f"{level} {part}" for level, part in row.matrix[axis].items()) or "-" for axis in axes),
            milliseconds(row.step_us),
            milliseconds(row.exposed_comm_us),
            f"{row.step_us / rows[0].step_us:.3f}",
        ]
        for at, row in enumerate(rows, 1)
    ]
    sizes = [f"{axis} {size}" for axis, size in result.mesh.items()]
    simulated = "simulated" if likely(rows) else "step"
    layout.table(out, ["no.", *sizes, simulated, "exposed", "times"], table, left=("no.", *sizes))
    left = result.placements - len(rows)
    if result.placements == 1:
        layout.line(
            out, "for these ranks the machine has one level, or each axis fills its own: there is one placement"
        )
    if left:
        why = "interrupted" if result.stopped else "they cost more by rings"
        layout.line(out, f"{left:,} of {result.placements:,} placements were not simulated: {why}", style="dim")
    _numbered(out, rows)
    layout.line(out, "--json tells for each placement the device of every rank", style="dim")
    _likely(out, rows)
    layout.heading(out, "Assumed")
    for each in result.assumptions:
        layout.line(out, each)
    layout.heading(out, "Left out")
    layout.line(out, "; ".join(result.left_out))


def _likely(out: Any, rows: Sequence[PlacedStep]) -> None:
    told = likely(rows)
    if told is None:
        return
    layout.heading(out, "Most probable step in ms", told.ground)
    table = [
        [str(at), *(milliseconds(each or 0.0) for each in (row.step_us_p50, row.step_us_p05, row.step_us_p95))]
        for at, row in enumerate(rows, 1)
    ]
    layout.table(out, ["no.", "most probable", "5 % below", "95 % below"], table, left=("no.",))


def _numbered(out: Any, rows: Sequence[PlacedStep]) -> None:
    """Say what the ranks' own numbers cost."""
    known = next((at for at, row in enumerate(rows) if row.as_numbered), None)
    if known is None:
        layout.line(out, "no placement leaves the ranks as they are numbered")
        return
    more = rows[known].step_us / rows[0].step_us - 1
    if known and more > 0:
        layout.line(out, f"ranks as they are numbered take {more:.2%} longer than the first placement")
