"""The answer to a query: columns on a terminal, tab-separated values in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from ringwright.reports import layout

TERMINAL_ROWS = 200


def write(columns: Sequence[str], rows: Sequence[Sequence[Any]], file: TextIO) -> None:
    """Write rows under their column names; a pipe gets every row, a terminal the first 200 and the number left out."""
    if not file.isatty():
        lines = ("\t".join("" if cell is None else layout.printable(cell) for cell in row) for row in (columns, *rows))
        file.writelines(f"{line}\n" for line in lines)
        return
    out = layout.console(file)
    text = [name for at, name in enumerate(columns) if rows and isinstance(rows[0][at], str)]
    layout.table(out, columns, rows[:TERMINAL_ROWS], left=text)
    if len(rows) > TERMINAL_ROWS:
        layout.line(out, f"and {len(rows) - TERMINAL_ROWS:,} more rows; pipe the output to have them all", style="dim")
