"""A library's choices, runs of equal choices folded into one line."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.reports import layout
from ringwright.units import format_size


def write(result: dict[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.library/1`` for a terminal."""
    out = layout.console(file, width=width)
    release = f" {result['release']}" if result["release"] else ""
    where = f"{result['ranks']} ranks on {result['nodes']} nodes"
    layout.line(out, f"{result['library']}{release}: {result['collective']}, {where}", style="bold", indent=0)
    if result["rules_of"] != result["release"]:
        layout.line(out, f"rules of {result['rules_of']}", style="dim", indent=0)
    rows = [
        [
            format_size(row["size_bytes"]),
            row["algorithm"],
            row.get("protocol") or "",
            row.get("channels") or "",
            "" if row.get("time_us") is None else f"{row['time_us']:,.1f}",
        ]
        for row in result["rows"]
    ]
    layout.table(
        out, ["size", "algorithm", "protocol", "channels", "predicted us"], rows, left=("algorithm", "protocol")
    )
