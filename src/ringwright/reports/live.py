"""A running job on a terminal: drawn anew in place, or a block of lines per look where the output is a pipe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ringwright.capture.live.following import headline
from ringwright.capture.live.live_late import SURE_LOOKS, named
from ringwright.ground.units import format_count, format_size, format_time
from ringwright.reports import layout

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType

    from ringwright.capture.live.following import Snapshot
    from ringwright.capture.live.live_late import LateRank

NARROW = 60  # columns, below which a table keeps what changes and leaves out what it adds up to
WIDE = 120
_MOST_OPERATIONS, _MOST_SIZES, _MOST_NICS, _MOST_LATE, _MOST_EVENTS = 12, 8, 8, 5, 3
_UNKNOWN = "-"


@contextmanager
def screen(file: TextIO, *, plain: bool = False, as_json: bool = False) -> Iterator[Callable[[Snapshot], None]]:
    """Give what shows a snapshot: in place on a terminal, as lines elsewhere, as one line of JSON with ``as_json``."""
    if as_json:
        yield lambda snapshot: print(json.dumps(snapshot.document(), default=str), file=file, flush=True)
        return
    out = layout.console(file)
    if plain or not file.isatty():
        yield lambda snapshot: _print(out, snapshot, file)
        return
    from rich.live import Live

    with Live(console=out, auto_refresh=False, transient=False) as display:
        yield lambda snapshot: display.update(drawn(snapshot, out.width), refresh=True)


def _print(out: Console, snapshot: Snapshot, file: TextIO) -> None:
    out.print(drawn(snapshot, out.width))
    file.flush()


def drawn(snapshot: Snapshot, width: int) -> Group:
    """Return a snapshot as it is drawn on so many columns."""
    from rich.console import Group

    parts: list[RenderableType] = [_line(headline(snapshot), "bold")]
    parts += [_line(f"ALERT {alert['text']}", "bold red") for alert in snapshot.alerts]
    parts += _operations(snapshot, width)
    parts += _sizes(snapshot, width)
    parts += _nics(snapshot, width)
    parts += _late(snapshot)
    for one, of in ((snapshot.recent, "in the last minute"), (snapshot.verdict, "in all")):
        if one:
            because = "; ".join(one["evidence"][:2])
            parts.append(_line(f"{one['kind']} {of}: {_ranks(one['ranks'])}: {because}", "red"))
    parts += [_line(event, "yellow") for event in snapshot.events[:_MOST_EVENTS]]
    if snapshot.files:
        parts.append(_line(_footer(snapshot), "dim"))
    return Group(*parts)


def _line(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(layout.printable(text), style=style)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> RenderableType:
    """Return a table whose first ``left`` columns are words and the others numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        is_word = number < left
        table.add_column(name, justify="left" if is_word else "right", no_wrap=not is_word, overflow="fold")
    for row in rows:
        table.add_row(*(Text(layout.printable(value)) for value in row))
    return table


def _operations(snapshot: Snapshot, width: int) -> list[RenderableType]:
    rows, is_narrow = snapshot.operations[:_MOST_OPERATIONS], width < NARROW
    if not rows:
        return []
    columns = ["op", "calls", "calls/s", "GB/s"] if is_narrow else ["op", "calls", "bytes", "new", "calls/s", "GB/s"]
    table = []
    for row in rows:
        rates = [_number(row["per_s"]), _number(row["gbs"])]
        size = _UNKNOWN if row["bytes"] is None else format_size(row["bytes"])
        more = [] if is_narrow else [size, f"+{format_count(row['new'])}"]
        table.append([row["op"], format_count(row["count"]), *more, *rates])
    more_rows = len(snapshot.operations) - len(rows)
    return [_table(columns, table), *([_line(f"and {more_rows} more operations", "dim")] if more_rows else [])]


def _sizes(snapshot: Snapshot, width: int) -> list[RenderableType]:
    """Return the classes of sizes with the most new bytes, where there is room for them and more than one of them."""
    rows = sorted(snapshot.sizes, key=lambda row: (-(row["gbs"] or 0.0), -row["new"]))[:_MOST_SIZES]
    if width < NARROW or len(rows) < 2:
        return []
    table = [
        [row["op"], row["message_size"], f"+{row['new']:,}", _number(row["per_s"]), _number(row["gbs"])] for row in rows
    ]
    return [_table(["new by size", "", "new", "calls/s", "GB/s"], table, left=2)]


def _nics(snapshot: Snapshot, width: int) -> list[RenderableType]:
    rows = sorted(snapshot.nics, key=lambda row: -max(row["sent_gbs"] or 0.0, row["received_gbs"] or 0.0))[:_MOST_NICS]
    if not rows:
        return []
    columns = ["NIC", "sent GB/s", "received GB/s"] if width >= NARROW else ["NIC", "sent", "got GB/s"]
    table = [[f"{row['host']} {row['nic']}", _number(row["sent_gbs"]), _number(row["received_gbs"])] for row in rows]
    left = len(snapshot.nics) - len(rows)
    return [_table(columns, table), *([_line(f"and {left} more NICs", "dim")] if left else [])]


def _late(snapshot: Snapshot) -> list[RenderableType]:
    """Return who is behind: those for some looks by name, those between two calls as a number."""
    sure = [row for row in snapshot.late if row["looks"] >= SURE_LOOKS]
    lines = [_line(_behind(row), "red" if row["still_looks"] >= SURE_LOOKS else "yellow") for row in sure[:_MOST_LATE]]
    others, more = len(snapshot.late) - len(sure[:_MOST_LATE]), "more " if sure else ""
    return [*lines, *([_line(f"{others} {more}behind, by a call or more", "dim")] if others else [])]


def _behind(row: LateRank) -> str:
    host = f" ({row['host']})" if row["host"] else ""
    still = f", not moved for {row['still_looks']}" if row["still_looks"] else ""
    calls = f"{format_count(row['behind'])} call{'s' if row['behind'] != 1 else ''}"
    group = f"communicator {row['communicator']} of {row['size']}"
    return f"behind: {named(row)}{host}: {calls} in {group}, for {row['looks']} looks{still}"


def _footer(snapshot: Snapshot) -> str:
    files = f"{snapshot.files} file{'s' if snapshot.files != 1 else ''}"
    read = f"read {format_size(snapshot.read_bytes)} in {format_time(snapshot.look_s)}"
    quiet = f"; nothing new for {snapshot.quiet_s:,.0f} s" if snapshot.quiet_s >= 1 else ""
    errors = f"; {snapshot.errors} errors" if snapshot.errors else ""
    return f"{files}; {read}{errors}{quiet}"


def _ranks(ranks: list[int]) -> str:
    if not ranks:
        return "no rank named"
    listed = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"


def _number(value: float | None) -> str:
    """Return three digits, with all that stand before the point."""
    if value is None:
        return _UNKNOWN
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
