"""What changed between two runs: steps, waiting, the time of each size, and calls, most changed bytes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ringwright.analysis.compared.diff_document import RunDifference
from ringwright.analysis.compared.diff_view import (
    CountView,
    DifferenceView,
    DisturbanceView,
    RunView,
    TimedSizeView,
    TimedWholeView,
)
from ringwright.ground.documents import read_json
from ringwright.ground.units import format_count, format_size
from ringwright.reports import headline, layout
from ringwright.reports.calls.simulated import time as microseconds
from ringwright.reports.layout import percent

if TYPE_CHECKING:
    from rich.console import Console

TOP_CHANGES = 20
TOP_TIMES = 40


def write(told: RunDifference, file: TextIO, *, width: int | None = None) -> None:
    """Write the report of a ``ringwright.diff/1`` object to ``file``."""
    difference = read_json(DifferenceView, told)
    out = layout.console(file, width=width)
    for side, counts in (("before", difference.before), ("after", difference.after)):
        layout.line(out, f"{side}: {_side(counts)}", indent=0)
    headline.write(out, difference.answer)
    for note in difference.notes:
        layout.line(out, f"- {note}", style="yellow")
    disturbance = difference.disturbance
    if disturbance:
        _disturbance(out, disturbance)
    _times(out, difference.times)
    _bandwidth(out, difference.bandwidth)
    changes = difference.changes
    layout.heading(out, "changes", f"{percent(difference.changed_share)} of calls or bytes over (op, size)")
    if not changes:
        layout.line(out, _nothing(difference))
        return
    _table(out, changes[:TOP_CHANGES])
    layout.cut(out, TOP_CHANGES, len(changes), "changes")


def _nothing(difference: DifferenceView) -> str:
    if not difference.before.count and not difference.after.count:
        return "neither input holds calls of a job: there are none to compare"
    return "none: operations, sizes, communicators, algorithms and host pairs are equal"


def _times(out: Console, rows: list[TimedWholeView]) -> None:
    """Say how steps, waiting and exposed communication moved."""
    if not rows:
        return
    layout.heading(out, "time", "changed: by more than it varies by itself")
    for row in rows:
        style = "yellow" if row.changed else ""
        before, after = row.before_share, row.after_share
        if before is None or after is None:
            name = {"step": "a step", "communication": "communication in a step"}[row.what]
            ms = f"{row.before_us / 1e3:,.2f} ms before, {row.after_us / 1e3:,.2f} ms after"
            text = f"{name}: {ms}, {row.ratio:.2f}x; varies by {percent(row.noise or 0.0)} ({row.noise_from})"
        else:
            whole = "the time in collectives" if row.what == "waiting" else "communication"
            name = {"waiting": "waiting for late ranks", "exposed": "not hidden behind compute"}[row.what]
            shares = f"{percent(before)} before, {percent(after)} after"
            text = f"{name}: {shares}, of {whole}"
        layout.line(out, f"{text}{'; changed' if row.changed else ''}", style=style)


def _bandwidth(out: Console, rows: list[TimedSizeView]) -> None:
    """Say how much longer each size took; the changed first in choice, by size in order."""
    if not rows:
        return
    changed = sum(row.changed for row in rows)
    layout.heading(out, "time by size", f"{changed} of {len(rows)} sizes changed by more than they vary by themselves")
    chosen = sorted(rows, key=lambda row: (not row.changed, -abs(row.ratio - 1)))[:TOP_TIMES]
    kept = {id(row) for row in chosen}
    columns = ("size", "op", "before us", "after us", "ratio", "varies by", "GB/s before", "GB/s after", "")
    table = [_timed(row) for row in rows if id(row) in kept]
    layout.table(out, columns, table, left=("op", ""))
    layout.cut(out, len(chosen), len(rows), "sizes")
    sources = dict.fromkeys(source for row in rows for source in row.noise_from.split("; "))
    layout.line(
        out,
        f"ratio: after / before; GB/s: bus bandwidth. How much a time varies by itself is told from: {'; '.join(sources)}",
        style="dim",
    )


def _timed(row: TimedSizeView) -> list[str | None]:
    rates = [None if rate is None else f"{rate:.3g}" for rate in (row.before_busbw_gbs, row.after_busbw_gbs)]
    return [
        format_size(row.size_bytes),
        row.op,
        microseconds(row.before_us),
        microseconds(row.after_us),
        f"{row.ratio:.2f}x",
        percent(row.noise),
        *rates,
        "changed" if row.changed else "",
    ]


def _disturbance(out: Console, disturbance: DisturbanceView) -> None:
    where = [f"rank {rank}" for rank in disturbance.ranks] + [str(host) for host in disturbance.hosts]
    layout.heading(out, "what disturbed the later run", " · ".join([disturbance.kind, *where]))
    for evidence in disturbance.evidence:
        layout.line(out, evidence)


def _side(side: RunView) -> str:
    name = ", ".join(str(name) for name in side.inputs[:3]) or "unnamed input"
    return f"{name}: {format_count(side.count)} calls, {format_size(side.bytes)}; {side.coverage}".rstrip("; ")


def _table(out: Console, changes: list[CountView]) -> None:
    layout.table(
        out,
        ("kind", "what", "count before", "after", "bytes changed"),
        [
            (
                change.kind,
                _what(change),
                format_count(change.before_count),
                format_count(change.after_count),
                f"{'+' if change.delta_bytes >= 0 else '-'}{format_size(abs(change.delta_bytes))}",
            )
            for change in changes
        ],
        left=("kind", "what"),
    )


def _what(change: CountView) -> str:
    sign = {"added": "new: ", "removed": "gone: "}.get(change.change, "")
    if change.kind in ("size", "algorithm") and change.size_bytes is not None:
        rest = change.key.split(" ")[2:]
        return sign + " ".join([str(change.op), format_size(change.size_bytes), *rest])
    return sign + str(change.key)
