"""Measured beside simulated: a table of errors, the steps of both Traces in columns, and as a page both as bands per rank."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ringwright.ground.units import format_size
from ringwright.reports import html, layout, tables
from ringwright_lab.reports.benched import us

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.model.trace import Trace
    from ringwright_lab.bench.compare import ComparedRow, Comparison

MOST_STEPS = 24
MOST_BANDS = 4
WIDTH, LEFT, ROW, MOST_RANKS = 900, 60, 16, 32


def write(comparison: Comparison, folder: Path, file: TextIO, *, width: int | None = None) -> None:
    """Write a comparison for a terminal."""
    out = layout.console(file, width=width)
    layout.line(out, _ground(comparison), style="bold", indent=0)
    for name, fitted in comparison.fitted.items():
        share = f"{100 * fitted.share:.1f} % of the fabric's rate"
        layout.line(out, f"{name}: {fitted.latency_s * 1e6:.0f} us a message beside the wire, {share}", indent=0)
    if comparison.verdict:
        layout.line(out, f"limit: {comparison.verdict['limit']} ({comparison.verdict['why']})", indent=0)
    for (backend, algorithm), group in groupby(comparison.rows, key=lambda row: (row.backend, row.algorithm)):
        layout.heading(out, f"{backend}, {algorithm}", "fitted: used for the calibration")
        columns = ("size", "measured us", "p10-p90 us", "simulated us", "error", "")
        layout.table(out, columns, [_cells(row) for row in group], left=("",))
    _steps(out, comparison, folder)
    layout.heading(out, "Error")
    error = comparison.geomean_error
    said = (
        "every size was needed for the calibration"
        if error is None
        else f"{100 * error:.1f} % geometric mean over the predicted"
    )
    layout.line(out, said, style="bold")
    if comparison.outside:
        layout.line(out, f"outside the simulation: {'; '.join(comparison.outside)}", style="yellow")


def _ground(comparison: Comparison) -> str:
    question = comparison.question
    faults = f", faults: {'; '.join(question.faults)}" if question.faults else ""
    where = f"{question.ranks} ranks in a lab, {question.lab}, TCP {question.tcp}{faults}"
    return f"measured against simulated: {question.op}, {where}; calibrated on half of the sizes"


def _cells(row: ComparedRow) -> list[str]:
    span = f"{us(row.p10_us)}-{us(row.p90_us)}"
    return [
        format_size(row.size_bytes),
        us(row.measured_us),
        span,
        us(row.simulated_us),
        f"{100 * row.error:+.1f} %",
        "fitted" if row.used else "",
    ]


def _largest(comparison: Comparison) -> list[ComparedRow]:
    """Return the largest size of each program."""
    best: dict[tuple[str, str], ComparedRow] = {}
    for row in comparison.rows:
        key = (row.backend, row.algorithm)
        if key not in best or row.size_bytes > best[key].size_bytes:
            best[key] = row
    return list(best.values())


def _both(comparison: Comparison, folder: Path) -> list[tuple[ComparedRow, Trace, Trace]]:
    from ringwright_lab.bench.compare import traces

    pairs = []
    for row in _largest(comparison):
        measured, simulated = traces(folder, comparison, row)
        if measured is not None:
            pairs.append((row, measured, simulated))
    return pairs


def _steps(out: Console, comparison: Comparison, folder: Path) -> None:
    for row, measured, simulated in _both(comparison, folder):
        ends = [_ends(measured), _ends(simulated)]
        steps = sorted(ends[0].keys() & ends[1].keys())
        if not steps:
            continue
        layout.heading(
            out, f"{row.backend}, {row.algorithm} of {format_size(row.size_bytes)}, step by step", "one recorded run"
        )
        cells = [
            [f"{step}", us(ends[0][step] * 1e6), us(ends[1][step] * 1e6), _off(ends[0][step], ends[1][step])]
            for step in steps[:MOST_STEPS]
        ]
        layout.table(out, ("step", "measured, all there us", "simulated us", "error"), cells)
        layout.cut(out, len(cells), len(steps), "steps")


def _off(measured_s: float, simulated_s: float) -> str:
    return f"{100 * (simulated_s / measured_s - 1):+.1f} %" if measured_s > 0 else "-"


def _ends(trace: Trace) -> dict[int, float]:
    """Return when the last message of each step had arrived."""
    ends: dict[int, float] = {}
    for message in _messages(trace):
        ends[message.step] = max(ends.get(message.step, 0.0), message.end_s)
    return ends


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message as its receiver saw it."""

    rank: int
    step: int
    start_s: float
    end_s: float
    size_bytes: int


def _messages(trace: Trace) -> list[SeenMessage]:
    """Return the messages as their receivers saw them; a simulated one is seen from its sender, and has a peer."""
    import polars as pl

    frame = trace.df.filter(pl.col("kind") == "proxy").sort("start_s")
    by_receiver = frame.filter(pl.col("sent_bytes") == 0).height > 0
    rows = []
    for event in frame.iter_rows(named=True):
        if by_receiver and event["sent_bytes"]:
            continue
        rank = event["rank"] if by_receiver else event["peer"]
        rows.append(
            SeenMessage(
                rank=int(rank),
                step=int(event["iteration"] or 0),
                start_s=float(event["start_s"]),
                end_s=float(event["start_s"] + event["duration_s"]),
                size_bytes=int(event["size_bytes"]),
            )
        )
    return rows


# ------------------------------------------------------------------------------------------------------------- the page
def page(comparison: Comparison, folder: Path, command: str) -> str:
    """Return the comparison as one HTML page."""
    error = comparison.geomean_error
    return html.render(
        "compared.html.j2",
        title=f"{comparison.question.op}: measured against simulated",
        ground=_ground(comparison),
        figures=[
            ("Ranks", str(comparison.question.ranks)),
            ("Collectives", str(len(comparison.rows))),
            ("Predicted", str(sum(not row.used for row in comparison.rows))),
            ("Error, geometric mean", "-" if error is None else f"{100 * error:.1f} %"),
        ],
        rows=_table(comparison.rows),
        bands=[_bands(row, measured, simulated) for row, measured, simulated in _both(comparison, folder)[:MOST_BANDS]],
        fitted=[
            f"{name}: {each.latency_s * 1e6:.0f} us a message beside the wire, {100 * each.share:.1f} % of the fabric's rate"
            for name, each in comparison.fitted.items()
        ],
        verdict=f"{comparison.verdict['limit']}: {comparison.verdict['why']}" if comparison.verdict else "",
        outside=list(comparison.outside),
        command=command,
    )


def _table(rows: list[ComparedRow]) -> tables.PageTable:
    columns = ["Backend", "Algorithm", "Size", "Measured us", "p10 us", "p90 us", "Simulated us", "Error %", "Used for"]
    cells = [
        [
            tables.text(row.backend),
            tables.text(row.algorithm),
            tables.size(row.size_bytes),
            tables.number(row.measured_us, us),
            tables.number(row.p10_us, us),
            tables.number(row.p90_us, us),
            tables.number(row.simulated_us, us),
            tables.number(100 * row.error, lambda value: f"{value:+.1f}"),
            tables.text("calibration" if row.used else "prediction"),
        ]
        for row in rows
    ]
    return tables.table("errors", "Every collective", columns, cells)


def _bands(row: ComparedRow, measured: Trace, simulated: Trace) -> dict[str, Any]:
    """Return both Traces on one time axis: a band a rank, a bar from a message's start to its arrival, shaded by step."""
    both = [_messages(measured), _messages(simulated)]
    end_s = max((message.end_s for messages in both for message in messages), default=1e-9)
    ranks = sorted({message.rank for messages in both for message in messages})[:MOST_RANKS]
    row_of = {rank: at for at, rank in enumerate(ranks)}
    panels = [
        {"name": name, "bars": [_bar(each, row_of, end_s) for each in messages if each.rank in row_of]}
        for name, messages in zip(("measured", "simulated"), both, strict=True)
    ]
    ticks = [(LEFT + part * (WIDTH - LEFT) / 4, f"{end_s * part / 4 * 1e3:.3g} ms") for part in range(5)]
    return {
        "title": f"{row.backend}, {row.algorithm} of {format_size(row.size_bytes)}",
        "panels": panels,
        "ticks": ticks,
        "ranks": [(at * ROW + ROW - 4, f"rank {rank}") for rank, at in row_of.items()],
        "width": WIDTH,
        "height": len(ranks) * ROW + 24,
        "left": LEFT,
    }


def _bar(message: SeenMessage, row_of: dict[int, int], end_s: float) -> dict[str, Any]:
    scale = (WIDTH - LEFT) / end_s
    start, end = message.start_s, message.end_s
    return {
        "x": round(LEFT + start * scale, 2),
        "width": round(max((end - start) * scale, 0.5), 2),
        "y": row_of[message.rank] * ROW + 2,
        "height": ROW - 4,
        "colour": message.step % 8,
        "title": f"step {message.step}: {message.size_bytes} B, {us(start * 1e6)} to {us(end * 1e6)} us",
    }
