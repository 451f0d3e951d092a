"""A running job on a terminal: one table that is drawn anew in place, or a line per look where the output is a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ringwright.reports import layout
from ringwright.studies.live import headline
from ringwright.units import format_count, format_size

if TYPE_CHECKING:
    from rich.console import Group

    from ringwright.studies.live import Snapshot


@contextmanager
def screen(file: TextIO, *, plain: bool = False) -> Iterator[Callable[[Snapshot], None]]:
    """Give what shows a snapshot: in place on a terminal, as lines elsewhere."""
    if plain or not file.isatty():
        yield lambda snapshot: print(_text(snapshot), end="", file=file, flush=True)
        return
    from rich.live import Live

    with Live(console=layout.console(file), auto_refresh=False, transient=False) as display:
        yield lambda snapshot: display.update(_drawn(snapshot), refresh=True)


def _rows(snapshot: Snapshot) -> list[tuple[str, str, str, str, str]]:
    return [
        (
            layout.printable(each["op"]),
            format_count(each["count"]),
            format_size(each["bytes"]),
            f"+{format_count(each['new'])}",
            "-" if each["per_s"] is None else f"{each['per_s']:,.1f}",
        )
        for each in snapshot.operations
    ]


def _drawn(snapshot: Snapshot) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("op", "calls", "bytes", "new", "calls/s"):
        table.add_column(name, justify="left" if name == "op" else "right")
    for row in _rows(snapshot):
        table.add_row(*row)
    verdict = snapshot.verdict
    lines: list[Text | Table] = [Text(layout.printable(headline(snapshot)), style="bold"), table]
    if verdict:
        because = "; ".join(verdict["evidence"][:2])
        lines.append(Text(layout.printable(f"{verdict['kind']}: ranks {verdict['ranks']}: {because}"), style="red"))
    return Group(*lines)


def _text(snapshot: Snapshot) -> str:
    lines = [headline(snapshot)]
    lines += [
        "  " + "  ".join(f"{cell:>12}" if column else f"{cell:<16}" for column, cell in enumerate(row))
        for row in _rows(snapshot)
    ]
    return "\n".join(layout.printable(line) for line in lines) + "\n"
