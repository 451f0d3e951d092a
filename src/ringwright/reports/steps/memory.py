"""Memory of ranks, for a terminal: a row a stage, and in words what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.ground.units import format_size
from ringwright.reports import layout

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.jobs.job_document import PolicyStep
    from ringwright.jobs.memory import StageMemory

MOST_STAGES = 16
PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers")


def stages(out: Console, rows: Sequence[StageMemory], device_bytes: int | None) -> None:
    """Print the peak of each stage and what holds it."""
    layout.heading(out, "Memory", "of a rank at its peak, by stage")
    if not rows:
        return
    shown = rows[:MOST_STAGES]
    cells = [[f"{row.stage}", *map(format_size, (row.peak_bytes, *_parts(row)))] for row in shown]
    layout.table(out, ["stage", "peak", *PARTS], cells)
    layout.cut(out, len(shown), len(rows), "stages")
    too_much(out, max(row.peak_bytes for row in rows), device_bytes)


def _parts(row: StageMemory) -> tuple[int, ...]:
    return row.parameters, row.gradients, row.optimizer, row.activations, row.buffers


def unfitting(rows: Sequence[PolicyStep]) -> list[str]:
    """Return a line that says of policies that a rank needs more than its device has, those that need the same together."""
    needs: dict[str, list[str]] = {}
    for row in rows:
        if row.too_large:
            needs.setdefault(row.too_large, []).append(row.policy)
    known = [row for row in rows if row.fits is not None]
    who = {lacks: "" if len(mine) == len(known) else f", {', '.join(mine)}" for lacks, mine in needs.items()}
    return [f"does not fit{who[lacks]}: {lacks}" for lacks in needs]


def too_much(out: Console, peak_bytes: int, device_bytes: int | None, who: str = "") -> None:
    """Say that a device has less than a rank needs, if it has."""
    if device_bytes is not None and peak_bytes > device_bytes:
        text = f"needs {format_size(peak_bytes)}, the device has {format_size(device_bytes)}"
        layout.line(out, f"{who}: {text}" if who else text, style="yellow")


def of_policies(out: Console, rows: Sequence[PolicyStep]) -> None:
    """Print the highest peak of each policy, policies that need the same together; why it is not known where it is not."""
    layout.heading(out, "Memory of a rank at its peak", "the highest of all stages")
    needs: dict[tuple[int | None, int | None, str], list[str]] = {}
    for row in rows:
        key = (row.peak_memory_bytes, row.device_memory_bytes, row.memory_unknown or "")
        needs.setdefault(key, []).append(row.policy)
    for (peak, device, unknown), policies in needs.items():
        who = "all policies" if len(policies) == len(rows) > 1 else ", ".join(policies)
        if peak is None:
            layout.line(out, f"{who}: not known, for {unknown}")
        elif device is not None and peak > device:
            too_much(out, peak, device, who)
        else:
            beside = f" of {format_size(device)}" if device is not None else ""
            layout.line(out, f"{who}: {format_size(peak)}{beside}")
