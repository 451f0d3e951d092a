"""A library's choices, runs of equal choices folded into one line."""

from __future__ import annotations

from typing import TextIO

from ringwright.calls.library_document import LibraryChoices
from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.calls import simulated


def write(result: LibraryChoices, file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.library/1`` for a terminal."""
    out = layout.console(file, width=width)
    release = f" {result.release}" if result.release else ""
    where = f"{result.ranks} ranks on {result.nodes} nodes"
    layout.line(out, f"{result.library}{release}: {result.collective}, {where}", style="bold", indent=0)
    if result.rules_of != result.release:
        layout.line(out, f"rules of {result.rules_of}", style="dim", indent=0)
    likely = any(row.time_us_p05 is not None for row in result.rows)
    rows = [
        [
            format_size(row.size_bytes),
            row.algorithm,
            row.protocol or "",
            row.channels or "",
            None if row.time_us_p50 is None else simulated.time(row.time_us_p50),
            *([simulated.between(row.time_us_p05, row.time_us_p95)] if likely else []),
            "" if row.time_us is None else f"{row.time_us:,.1f}",
        ]
        for row in result.rows
    ]
    by_program = any(row.predicted_by for row in result.rows)
    own = "closed form us" if by_program else "its own us"
    columns = ["size", "algorithm", "protocol", "channels", "time us", *(["90 % us"] * likely), own]
    layout.table(out, columns, rows, left=("algorithm", "protocol"))
    on = f"as simulate answers on {result.fabric}" if result.fabric else "no fabric is made of such nodes"
    layout.line(out, f"time us: {on}", style="dim")
    if not by_program:
        layout.line(out, f"{own}: what the library itself estimates, and chooses by", style="dim")
