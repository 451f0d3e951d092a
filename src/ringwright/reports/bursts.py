"""Bursts on a terminal and on the page: quantiles, a row for each phase and the NICs that send most, pictures of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.analysis.summary_view import BurstsView, BurstView
from ringwright.analysis.traffic.burst_document import ToldBursts
from ringwright.ground.documents import read_json
from ringwright.ground.units import format_count, format_size
from ringwright.reports import layout
from ringwright.reports.draw.charts import Chart, powers
from ringwright.reports.overlap import us
from ringwright.reports.tables import Cell, PageTable, count, number, share, size, table, text

if TYPE_CHECKING:
    from rich.console import Console

TOP_NICS = 4
TOP_PHASES = 6
EXPLAINED = (
    "gap: from the end of a burst to the next of the same NIC; duty: share of the time in which a NIC sends; incast: how many "
    "send to one NIC at once, p50/p95/p99/most"
)


def write(out: Console, told: ToldBursts | BurstsView | None, unknown: str, title: str = "bursts") -> None:
    """Write the bursts for a terminal under ``title``, or why there are none; nothing where there is neither."""
    bursts = None if told is None else read_json(BurstsView, told)
    if bursts is None:
        if unknown:
            layout.heading(out, title)
            layout.line(out, f"unknown: {unknown}", style="yellow")
        return
    layout.heading(out, title, bursts.gap_rule)
    counted = f"{_counted(bursts.count, 'burst')} of {_counted(bursts.nics_total, bursts.of)}"
    if not bursts.count:
        counted = "no transfer uses a NIC"
    layout.line(out, counted if bursts.duty is None else f"{counted}; duty {_share(bursts.duty)}")
    if bursts.count:
        _known(out, ("", "p50", "p95", "p99", "most"), _quantiles(bursts), left="")
    rows = [_line(name, row) for name, row in _rows(bursts)]
    if rows:
        out.print()
        _known(out, ("of", "bursts", "bytes", "size p50", "p99", "gap p50", "duty", "incast"), rows, left="of")
    layout.cut(out, TOP_NICS, bursts.nics_total, _plural(bursts.of))
    layout.cut(out, TOP_PHASES, len(bursts.phases), "phases")
    if bursts.steps:
        layout.line(out, steps_line(bursts))
    for said in (bursts.ground, *bursts.limits):
        layout.line(out, said, style="dim")


def _known(out: Console, columns: Sequence[str], rows: Sequence[Sequence[str | None]], *, left: str) -> None:
    """Write a table without the columns of which nothing is known."""
    kept = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    layout.table(out, [columns[at] for at in kept], [[row[at] for at in kept] for row in rows], left=(left,))


def _counted(count: int, what: str) -> str:
    return f"{format_count(count)} {what if count == 1 else _plural(what)}"


def _plural(what: str) -> str:
    return f"{what}es" if what.endswith("s") else f"{what}s"


def _quantiles(bursts: BurstsView) -> list[list[str | None]]:
    """Return the rows of what is known: sizes, gaps, durations, incast."""
    durations = (bursts.duration_us_p50, bursts.duration_us_p95, bursts.duration_us_p99)
    degrees = (bursts.incast_p50, bursts.incast_p95, bursts.incast_p99, bursts.incast_max)
    sizes = (bursts.size_bytes_p50, bursts.size_bytes_p95, bursts.size_bytes_p99)
    rows: list[list[str | None]] = [
        ["size", *map(_size, sizes), None],
        ["gap", *(None if gap is None else us(gap) for gap in _gaps(bursts)), None],
        ["duration", *(None if each is None else us(each) for each in durations), None],
        ["incast", *(None if degree is None else str(degree) for degree in degrees)],
    ]
    return [row for row in rows if row[1] is not None]


def _rows(bursts: BurstsView) -> list[tuple[str, BurstView]]:
    """Return the rows of the terminal: the phases, and the NICs that send most."""
    named: list[tuple[str, BurstView]] = [(row.phase, row) for row in bursts.phases[:TOP_PHASES]]
    if bursts.nics_total > 1 or not bursts.phases:
        most = sorted(bursts.nics, key=lambda row: -(row.bytes or 0))
        named += [(row.nic, row) for row in most[:TOP_NICS]]
    return named


def _line(name: str, row: BurstView) -> list[str | None]:
    gap, most = row.gap_us_p50, row.incast_max
    return [
        name,
        format_count(row.count),
        _size(row.bytes),
        _size(row.size_bytes_p50),
        _size(row.size_bytes_p99),
        None if gap is None else us(gap),
        _share(row.duty),
        None if most is None else str(most),
    ]


def _gaps(row: BurstView) -> tuple[float | None, float | None, float | None]:
    return row.gap_us_p50, row.gap_us_p95, row.gap_us_p99


def _size(size_bytes: float | None) -> str | None:
    return None if size_bytes is None else format_size(size_bytes)


def _share(value: float | None) -> str | None:
    return None if value is None else layout.percent(value)


def incast_text(row: BurstView) -> str | None:
    """Return p50/p95/p99/max of the incast degree, None where it is not known."""
    degrees = (row.incast_p50, row.incast_p95, row.incast_p99, row.incast_max)
    return None if degrees[0] is None else "/".join(str(degree) for degree in degrees)


def steps_line(bursts: BurstsView) -> str:
    """Return how many bursts and bytes the steps have, from the fewest to the most."""
    counts = sorted(row.count for row in bursts.steps)
    sizes = sorted(row.bytes for row in bursts.steps if row.bytes is not None)
    spread = format_count(counts[0]) + (f" to {format_count(counts[-1])}" if counts[-1] > counts[0] else "")
    moved = ""
    if sizes:
        low, high = format_size(sizes[0]), format_size(sizes[-1])
        moved = f", {low}" + (f" to {high}" if high != low else "")
    return f"steps: {bursts.steps_total:,}, each of {spread} burst{'s' if counts[-1] != 1 else ''}{moved}"


@dataclass(frozen=True, slots=True)
class BurstSection:
    """What the page shows of bursts."""

    of: str
    rule: str
    ground: str
    explained: str
    limits: list[str]
    unknown: str
    charts: list[tuple[str, Chart]]
    tables: list[PageTable]


def page(told: ToldBursts | BurstsView | None, unknown: str, of: str = "") -> BurstSection | None:
    """Return the page's section, or None where nothing is known of bursts, nor why; ``of``: whose bursts these are."""
    if told is None:
        return BurstSection("", "", "", "", [], unknown, [], []) if unknown else None
    bursts = read_json(BurstsView, told)
    sizes = [(row.log2_low_bytes, row.count) for row in bursts.size_classes]
    gaps = [(row.log2_low_us, row.count) for row in bursts.gap_classes]
    charts = [
        ("Bursts by size", powers(sizes, format_size, "bursts")),
        ("Pauses between bursts by length", powers(gaps, us, "pauses")),
    ]
    return BurstSection(
        of=f"{of}. " if of else "",
        rule=bursts.gap_rule,
        ground=bursts.ground,
        explained=EXPLAINED,
        limits=bursts.limits,
        unknown="",
        charts=[(label, chart) for label, chart in charts if chart is not None],
        tables=_tables(bursts),
    )


def _tables(bursts: BurstsView) -> list[PageTable]:
    parts: list[tuple[str, str, str, Sequence[tuple[str, BurstView]]]] = [
        ("whole", "Bursts", "of", [(f"all {_plural(bursts.of)}", bursts)]),
        ("phases", "Bursts by phase", "phase", [(row.phase, row) for row in bursts.phases]),
        ("nics", f"Bursts by {bursts.of}", bursts.of, [(row.nic, row) for row in bursts.nics]),
        ("steps", "Bursts by step", "step", [(str(row.step), row) for row in bursts.steps]),
    ]
    return [
        table(
            f"burst_{name}",
            title,
            [head, "bursts", "bytes", "size p50", "p95", "p99", "gap p50", "p95", "p99", "duration", "duty", "incast"],
            [_cells(label, row) for label, row in rows],
        )
        for name, title, head, rows in parts
        if rows
    ]


def _cells(label: str, row: BurstView) -> list[Cell]:
    duty = row.duty
    return [
        text(label),
        count(row.count),
        size(row.bytes),
        *map(size, (row.size_bytes_p50, row.size_bytes_p95, row.size_bytes_p99)),
        *(number(gap, us) for gap in _gaps(row)),
        number(row.duration_us_p50, us),
        text(None) if duty is None else share(duty),
        text(incast_text(row)),
    ]
