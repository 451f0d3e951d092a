"""The tables of the page: titles, columns, bounded rows; every cell with its text and the value it sorts by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ringwright.analysis.document import Row, Summary
from ringwright.ground.units import format_count, format_size
from ringwright.reports import cuts
from ringwright.reports.completion import operation_rows, short_place, size_rows
from ringwright.reports.layout import percent

MOST_ROWS = 200


class Cell(TypedDict):
    """What stands in a row: its text, the value it sorts by, a tooltip, the percentage of a bar, and whether it is code."""

    text: str
    value: float | None
    hint: str
    bar: float | None
    code: bool


class ColumnHead(TypedDict):
    """The head of a column."""

    label: str
    numeric: bool


class PageTable(TypedDict):
    """A table of the page; ``note`` says how many rows are cut."""

    name: str
    title: str
    columns: list[ColumnHead]
    rows: list[list[Cell]]
    note: str


_BLANK: Cell = {"text": "", "value": None, "hint": "", "bar": None, "code": False}


def text(value: Any) -> Cell:
    """Return a cell of text; a missing value is a dash."""
    return {**_BLANK, "text": "–" if value in (None, "") else cuts.short(value)}


def number(value: float | None, show: Callable[[Any], str] = str) -> Cell:
    """Return a right-aligned cell that sorts by number."""
    return {**_BLANK, "text": "–" if value is None else show(value), "value": -1 if value is None else value}


def size(value: float | None) -> Cell:
    """Return a cell of bytes, exact in its tooltip."""
    return {**number(value, format_size), "hint": "" if value is None else f"{round(value):,} bytes"}


def count(value: int | None) -> Cell:
    """Return a cell of a count."""
    return number(value, format_count)


def place(file: Any, line: Any) -> Cell:
    """Return a cell of file name and line; the tooltip has the whole path."""
    return {**text(short_place(file, line)), "hint": cuts.short(file or "")}


def share(value: float) -> Cell:
    """Return a cell of a share with a bar behind it."""
    return {**number(value, percent), "bar": round(100 * max(0.0, min(1.0, value)), 2)}


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
    numeric = [cell["value"] is not None for cell in kept[0]] if kept else [False] * len(columns)
    heads: list[ColumnHead] = [{"label": label, "numeric": numeric[at]} for at, label in enumerate(columns)]
    note = f"{left:,} of {left + len(kept):,} rows are cut here; {whole} holds all" if left else ""
    return {"name": name, "title": title, "columns": heads, "rows": kept, "note": note}


def all_tables(view: Summary) -> dict[str, PageTable]:
    """Return every table of the page by name."""
    built = [*_operations(view), *_traffic(view), *_communicators(view), *_time(view), *_ground(view)]
    return {one["name"]: one for one in built}


def _operations(view: Summary) -> list[PageTable]:
    columns = ["op", "min size", "median", "max", "count", "records", "bytes", "share of bytes"]
    operations = [
        [
            text(r["op"]),
            *(size(r[key]) for key in ("min_bytes", "median_bytes", "max_bytes")),
            count(r["count"]),
            count(r["records"]),
            size(r["bytes"]),
            share(r["share"]),
        ]
        for r in operation_rows(view)
    ]
    exact = [
        [size(r["size_bytes"]), count(r["count"]), text(r["op"]), size(r["bytes"]), share(r["share"])]
        for r in size_rows(view)
    ]
    algorithms = [
        [
            size(r.get("size_bytes")),
            count(r.get("count")),
            text(r["op"]),
            text(r.get("algorithm")),
            text(r.get("protocol")),
            number(r.get("channels")),
        ]
        for r in view["algorithms"]
    ]
    by = [
        table(f"by_{name}", f"By {name}", [name, "op", "count", "bytes"], _grouped(rows, name))
        for name, rows in (("role", view["by_role"]), ("phase", view["by_phase"]))
    ]
    return [
        table("operations", "Operations", columns, operations),
        table("sizes", "Exact sizes", ["size", "count", "op", "bytes", "share of bytes"], exact),
        table("algorithms", "Algorithms", ["size", "count", "op", "algorithm", "protocol", "channels"], algorithms),
        *by,
    ]


def _grouped(rows: list[Row], name: str) -> list[list[Cell]]:
    ordered = sorted(rows, key=lambda r: -(r.get("bytes") or 0))
    return [[text(r.get(name)), text(r["op"]), count(r.get("count")), size(r.get("bytes"))] for r in ordered]


def _traffic(view: Summary) -> list[PageTable]:
    tables = []
    pairs: tuple[tuple[str, str, Sequence[Mapping[str, Any]]], ...] = (
        ("pairs", "Rank pairs", view["pair_bytes"]),
        ("hosts", "Host pairs", view["host_pair_bytes"]),
    )
    for name, title, moved in pairs:
        ordered = sorted(moved, key=lambda r: (-r["bytes"], r["src"], r["dst"]))
        total = sum(r["bytes"] for r in ordered) or 1
        kind = number if name == "pairs" else text
        rows = [[kind(r["src"]), kind(r["dst"]), size(r["bytes"]), share(r["bytes"] / total)] for r in ordered]
        tables.append(table(name, title, ["from", "to", "bytes", "share"], rows, 50 if name == "pairs" else MOST_ROWS))
    nics = sorted(view["nic_bytes"], key=lambda r: -((r.get("sent_bytes") or 0) + (r.get("received_bytes") or 0)))
    rows = [[text(r["host"]), text(r["nic"]), size(r.get("sent_bytes")), size(r.get("received_bytes"))] for r in nics]
    return [*tables, table("nics", "NICs", ["host", "NIC", "sent", "received"], rows)]


def _communicators(view: Summary) -> list[PageTable]:
    listed = sorted(view["communicator_list"], key=lambda c: (-(c.get("bytes") or 0), c["communicator"]))
    rows = [
        [
            number(c["communicator"]),
            number(c.get("size")),
            number(c.get("ranks_seen")),
            number(c.get("nnodes")),
            text(c.get("role")),
            text(c.get("role_evidence")),
            count(c.get("operations")),
            size(c.get("bytes")),
            text(c.get("ground")),
        ]
        for c in listed
    ]
    columns = ["id", "ranks", "seen", "hosts", "role", "evidence", "calls", "bytes", "ground"]
    if not rows:
        columns, rows = (
            ["ranks", "communicators"],
            [[number(c["size"]), count(c["count"])] for c in view["communicators"]],
        )
    both = [
        [number(c["communicator_a"]), number(c["communicator_b"]), count(c["overlaps"])] for c in view["concurrency"]
    ]
    places = [
        [
            number(r.get("rank")),
            text(r.get("host")),
            number(r.get("pid")),
            number(r.get("device")),
            text(r.get("bus_id")),
            count(r.get("records")),
        ]
        for r in view["ranks"]
    ]
    return [
        table("communicators", "Communicators", columns, rows),
        table("concurrency", "At the same time", ["communicator", "communicator", "overlaps"], both, 50),
        table("ranks", "Ranks", ["rank", "host", "process", "device", "bus", "records"], places),
    ]


def _time(view: Summary) -> list[PageTable]:
    bursts = view["timeline"]["bursts"] if view["timeline"] else []
    ordered = sorted(bursts, key=lambda b: -b["bytes"])
    zero_s = cuts.time_origin_s(view["timeline"])
    rows = [
        [
            number(b["start_s"] - zero_s, _seconds),
            number(b["duration_s"], _seconds),
            count(b.get("count")),
            size(b.get("bytes")),
        ]
        for b in ordered
    ]
    return [table("bursts", "Bursts, most bytes first", ["start", "duration", "calls", "bytes"], rows, 50)]


def _seconds(value: float) -> str:
    return f"{value:.4g} s"


def _ground(view: Summary) -> list[PageTable]:
    claims = [
        [
            text(c.get("field")),
            text(c.get("value")),
            text(c.get("ground")),
            number(c.get("confidence"), _confidence),
            text(c.get("source")),
            text(c.get("note")),
        ]
        for c in view["claims"]
    ]
    ledger: list[list[Cell]] = [
        [
            text(r.get("outcome")),
            text(r.get("reason")),
            count(r.get("lines")),
            place(r.get("file"), r.get("example_line")),
            {**text(r.get("example")), "code": True},
        ]
        for r in sorted(view["ledger_detail"], key=lambda r: -(r.get("lines") or 0))
    ]
    errors = [
        [
            text("first" if e.get("first") else None),
            number(e.get("rank")),
            text(e.get("host")),
            text(e.get("text")),
            place(e.get("file"), e.get("line")),
            number(e.get("code")),
        ]
        for e in sorted(view["errors"], key=lambda e: not e.get("first"))
    ]
    return [
        table("claims", "Claims", ["field", "value", "ground", "confidence", "source", "note"], claims, 100),
        table("ledger", "Ledger", ["outcome", "reason", "lines", "first at", "example"], ledger, 100),
        table("errors", "Errors", ["order", "rank", "host", "text", "at", "code"], errors, 50),
    ]


def _confidence(value: float) -> str:
    return f"{value:.2f}"
