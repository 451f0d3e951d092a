"""What can be named, as text: each name, its meaning and how it is typed."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.ground import invocation
from ringwright.reports import layout


def write(listing: dict[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.list/1`` for a terminal."""
    out = layout.console(file, width=width)
    layout.line(out, f"{listing['what']}: {len(listing['rows'])}", style="bold", indent=0)
    rows = [[row["name"], row["meaning"], invocation.as_called(row["example"])] for row in listing["rows"]]
    layout.table(out, ("name", "meaning", "typed"), rows, left=("name", "meaning", "typed"))
