"""A sweep for a terminal, and as a page that compares its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ringwright.ground.documents import read_json
from ringwright.ground.units import format_count, format_size, format_us
from ringwright.reports import layout, tables
from ringwright_lab.reports import experiment
from ringwright_lab.sweep.experiment_view import SimulatedCell, SweepView

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 40


def page(swept: Mapping[str, Any], command: str) -> str:
    """Return the page of a ``ringwright.sweep/1`` object."""
    result = read_json(SweepView, swept)
    done = sum(cell.outcome == "done" for cell in result.cells)
    return experiment.render(
        result,
        command,
        title="A sweep of recorded runs",
        ground=f"{done} of {len(result.cells)} cells done; one table of all: {result.table}",
        figures=[
            ("Cells", format_count(len(result.cells))),
            ("Rows", format_count(result.rows)),
            ("Formulas", f"{result.agreeing} of {result.checked} equal"),
            ("Largest request", experiment.largest(result.patterns)),
        ],
        simulated=_table(result.simulated) if result.simulated else None,
    )


def _ordered(rows: Sequence[SimulatedCell]) -> list[SimulatedCell]:
    return sorted(rows, key=lambda row: (experiment.label(row), row.nodes, row.simulated_by, row.env))


def _table(rows: Sequence[SimulatedCell]) -> tables.PageTable:
    """Return the communication of simulated cells as a table of the page."""
    columns = ["What", "Settings", "Library", "Machine", "Nodes", "Calls", "Time"]
    cells = [
        [
            *(tables.text(each) for each in (experiment.label(row), row.env, row.simulated_by, row.machine)),
            tables.count(row.nodes),
            tables.count(row.calls),
            tables.number(row.time_us_p50, lambda time_us: format_us(time_us * 1e-6)),
        ]
        for row in _ordered(rows)
    ]
    return tables.table("simulated", "Communication by the model of a library", columns, cells, whole=experiment.WHOLE)


def write(swept: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write what a sweep found; the page and the table hold all of it."""
    result = read_json(SweepView, swept)
    out = layout.console(file, width=width)
    counts = result.counts
    layout.line(
        out,
        f"{counts['run']} cells run, {counts['kept']} from before, {counts['failed']} failed",
        style="bold",
        indent=0,
    )
    for cell in [cell for cell in result.cells if cell.outcome != "done"][:8]:
        layout.line(out, f"failed: {cell.cell}: {cell.why[:200]}", style="red")
    for key, why in result.left_out[:4]:
        layout.line(out, f"left out: {key}: {why}", style="dim")
    if len(result.left_out) > 4:
        layout.line(out, f"and {len(result.left_out) - 4} more combinations that are not legal", style="dim")
    layout.line(out, f"recorded and calculated: {result.agreeing} of {result.checked} equal to the unit", indent=0)
    for check in [check for check in result.agreement if not check.agrees][:6]:
        layout.line(out, f"{check.cell} {check.when}: {check.difference}", style="red")
    if result.patterns:
        layout.heading(out, "patterns", "one iteration, prompt or token of one rank")
    for row in result.patterns[:MOST_ROWS]:
        operations = ", ".join(f"{each.calls} {each.op}" for each in row.operations)
        layout.line(out, f"{experiment.label(row)}: {operations}; {format_size(row.bytes)}; {row.distinct} sizes")
    _simulated(out, result.simulated)
    layout.line(out, f"table: {result.table}; pictures: {result.out}/report.html", indent=0)


def _simulated(out: Console, rows: Sequence[SimulatedCell]) -> None:
    """Print the communication of cells whose library did not run here."""
    if not rows:
        return
    layout.heading(out, "simulated", "communication of one rank by the library's model; nothing of it was measured")
    cells = [
        [
            experiment.label(row),
            row.env or "-",
            row.simulated_by,
            row.machine,
            f"{row.nodes}",
            format_us(row.time_us_p50 * 1e-6),
        ]
        for row in _ordered(rows)[:MOST_ROWS]
    ]
    columns = ["what", "env", "by", "machine", "nodes", "time"]
    layout.table(out, columns, cells, left=("what", "env", "by", "machine"))
    layout.cut(out, len(cells), len(rows), "simulated cells")
