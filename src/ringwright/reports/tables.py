"""The tables of the page: titles, columns, bounded rows; every cell with its text and the value it sorts by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringwright.analysis.summary_view import SeenHosts, SeenPair, SeenPart, SeenSummary
from ringwright.ground.units import format_count, format_size
from ringwright.reports import cuts
from ringwright.reports.completion import operation_rows, short_place, size_rows
from ringwright.reports.layout import percent

MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a row: its text, the value it sorts by, a tooltip, the percentage of a bar, and whether it is code."""

    text: str
    value: float | None = None
    hint: str = ""
    bar: float | None = None
    code: bool = False


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """The head of a column."""

    label: str
    numeric: bool


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of the page; ``note`` says how many rows are cut."""

    name: str
    title: str
    columns: list[ColumnHead]
    rows: list[list[Cell]]
    note: str


def text(value: Any) -> Cell:
    """Return a cell of text; a missing value is a dash."""
    return Cell("–" if value in (None, "") else cuts.short(value))


def number(value: float | None, show: Callable[[Any], str] = str) -> Cell:
    """Return a right-aligned cell that sorts by number."""
    return Cell("–", -1) if value is None else Cell(show(value), value)


def size(value: float | None) -> Cell:
    """Return a cell of bytes, exact in its tooltip."""
    return replace(number(value, format_size), hint="" if value is None else f"{round(value):,} bytes")


def count(value: int | None) -> Cell:
    """Return a cell of a count."""
    return number(value, format_count)


def place(file: Any, line: Any) -> Cell:
    """Return a cell of file name and line; the tooltip has the whole path."""
    return replace(text(short_place(file, line)), hint=cuts.short(file or ""))


def share(value: float) -> Cell:
    """Return a cell of a share with a bar behind it."""
    return replace(number(value, percent), bar=round(100 * max(0.0, min(1.0, value)), 2))


def table(
    name: str,
    title: str,
    columns: list[str],
    rows: Iterable[list[Cell]],
    most: int = MOST_ROWS,
    whole: str = "ringwright summary --json",
) -> PageTable:
    """Return one table; a column is numeric when the first row's cell is. ``whole``: what holds the rows that are cut."""
    kept, left = cuts.head(rows, most)
    numeric = [cell.value is not None for cell in kept[0]] if kept else [False] * len(columns)
    heads = [ColumnHead(label, numeric[at]) for at, label in enumerate(columns)]
    note = f"{left:,} of {left + len(kept):,} rows are cut here; {whole} holds all" if left else ""
    return PageTable(name, title, heads, kept, note)


def all_tables(view: SeenSummary) -> dict[str, PageTable]:
    """Return every table of the page by name."""
    built = [*_operations(view), *_traffic(view), *_communicators(view), *_time(view), *_ground(view)]
    return {one.name: one for one in built}


def _operations(view: SeenSummary) -> list[PageTable]:
    columns = ["op", "min size", "median", "max", "count", "records", "bytes", "share of bytes"]
    operations = [
        [
            text(r.op),
            *map(size, (r.min_bytes, r.median_bytes, r.max_bytes)),
            count(r.count),
            count(r.records),
            size(r.bytes),
            share(r.share),
        ]
        for r in operation_rows(view)
    ]
    exact = [[size(r.size_bytes), count(r.count), text(r.op), size(r.bytes), share(r.share)] for r in size_rows(view)]
    algorithms = [
        [
            size(r.size_bytes),
            count(r.count),
            text(r.op),
            text(r.algorithm),
            text(r.protocol),
            number(r.channels),
        ]
        for r in view.algorithms
    ]
    by = [
        table(f"by_{name}", f"By {name}", [name, "op", "count", "bytes"], _grouped(rows))
        for name, rows in (("role", view.by_role), ("phase", view.by_phase))
    ]
    return [
        table("operations", "Operations", columns, operations),
        table("sizes", "Exact sizes", ["size", "count", "op", "bytes", "share of bytes"], exact),
        table("algorithms", "Algorithms", ["size", "count", "op", "algorithm", "protocol", "channels"], algorithms),
        *by,
    ]


def _grouped(rows: list[SeenPart]) -> list[list[Cell]]:
    ordered = sorted(rows, key=lambda r: -(r.bytes or 0))
    return [[text(r.role or r.phase), text(r.op), count(r.count), size(r.bytes)] for r in ordered]


def _traffic(view: SeenSummary) -> list[PageTable]:
    tables = []
    pairs: tuple[tuple[str, str, Sequence[SeenPair | SeenHosts]], ...] = (
        ("pairs", "Rank pairs", view.pair_bytes),
        ("hosts", "Host pairs", view.host_pair_bytes),
    )
    for name, title, moved in pairs:
        ordered = sorted(moved, key=lambda r: (-r.bytes, r.src, r.dst))
        total = sum(r.bytes for r in ordered) or 1
        kind: Callable[[Any], Cell] = number if name == "pairs" else text
        rows = [[kind(r.src), kind(r.dst), size(r.bytes), share(r.bytes / total)] for r in ordered]
        tables.append(table(name, title, ["from", "to", "bytes", "share"], rows, 50 if name == "pairs" else MOST_ROWS))
    nics = sorted(view.nic_bytes, key=lambda r: -((r.sent_bytes or 0) + (r.received_bytes or 0)))
    rows = [[text(r.host), text(r.nic), size(r.sent_bytes), size(r.received_bytes)] for r in nics]
    return [*tables, table("nics", "NICs", ["host", "NIC", "sent", "received"], rows)]


def _communicators(view: SeenSummary) -> list[PageTable]:
    listed = sorted(view.communicator_list, key=lambda c: (-(c.bytes or 0), c.communicator))
    rows = [
        [
            number(c.communicator),
            number(c.size),
            number(c.ranks_seen),
            number(c.nnodes),
            text(c.role),
            text(c.role_evidence),
            count(c.operations),
            size(c.bytes),
            text(c.ground),
        ]
        for c in listed
    ]
    columns = ["id", "ranks", "seen", "hosts", "role", "evidence", "calls", "bytes", "ground"]
    if not rows:
        columns, rows = (
            ["ranks", "communicators"],
            [[number(c.size), count(c.count)] for c in view.communicators],
        )
    both = [[number(c.communicator_a), number(c.communicator_b), count(c.overlaps)] for c in view.concurrency]
    places = [
        [
            number(r.rank),
            text(r.host),
            number(r.pid),
            number(r.device),
            text(r.bus_id),
            count(r.records),
        ]
        for r in view.ranks
    ]
    return [
        table("communicators", "Communicators", columns, rows),
        table("concurrency", "At the same time", ["communicator", "communicator", "overlaps"], both, 50),
        table("ranks", "Ranks", ["rank", "host", "process", "device", "bus", "records"], places),
    ]


def _time(view: SeenSummary) -> list[PageTable]:
    bursts = view.timeline.bursts if view.timeline else []
    ordered = sorted(bursts, key=lambda b: -b.bytes)
    zero_s = cuts.time_origin_s(view.timeline)
    rows = [
        [
            number(b.start_s - zero_s, _seconds),
            number(b.duration_s, _seconds),
            count(b.count),
            size(b.bytes),
        ]
        for b in ordered
    ]
    return [table("bursts", "Bursts, most bytes first", ["start", "duration", "calls", "bytes"], rows, 50)]


def _seconds(value: float) -> str:
    return f"{value:.4g} s"


def _ground(view: SeenSummary) -> list[PageTable]:
    claims = [
        [
            text(c.field),
            text(c.value),
            text(c.ground),
            number(c.confidence, _confidence),
            text(c.source),
            text(c.note),
        ]
        for c in view.claims
    ]
    ledger: list[list[Cell]] = [
        [
            text(r.outcome),
            text(r.reason),
            count(r.lines),
            place(r.file, r.example_line),
            replace(text(r.example), code=True),
        ]
        for r in sorted(view.ledger_detail, key=lambda r: -(r.lines or 0))
    ]
    errors = [
        [
            text("first" if e.first else None),
            number(e.rank),
            text(e.host),
            text(e.text),
            place(e.file, e.line),
            number(e.code),
        ]
        for e in sorted(view.errors, key=lambda e: not e.first)
    ]
    return [
        table("claims", "Claims", ["field", "value", "ground", "confidence", "source", "note"], claims, 100),
        table("ledger", "Ledger", ["outcome", "reason", "lines", "first at", "example"], ledger, 100),
        table("errors", "Errors", ["order", "rank", "host", "text", "at", "code"], errors, 50),
    ]


def _confidence(value: float) -> str:
    return f"{value:.2f}"
