"""The bounds of a collective on a fabric, and the cut that proves them."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.calls.fault_costs import write_faults

MOST_NAMES = 24


def write(result: dict[str, Any], file: TextIO, *, width: int | None = None, command: str = "") -> None:
    """Write the object of schema ``ringwright.bound/1`` for a terminal; ``command`` would give the exact bound."""
    out = layout.console(file, width=width)
    size = format_size(result["size_bytes"])
    layout.line(
        out,
        f"bound: {result['collective']} of {size} on {result['fabric']}, {result['ranks']} ranks, {result['link_model']} links",
        style="bold",
        indent=0,
    )
    write_faults(out, result["asked"])
    rows = [
        [row["reduction"], row["kind"], f"{row['time_us']:,.2f}", f"{row['algbw_gbs']:.2f}"] for row in result["bounds"]
    ]
    layout.table(out, ["reduction", "kind", "time us", "algbw GB/s"], rows, left=("reduction", "kind"))
    least = result["lowest"]
    told = f"no program can beat {least['time_us']:,.2f} us, {least['algbw_gbs']:.2f} GB/s: {least['ground']}"
    layout.line(out, told)
    if least["exact"]:
        layout.line(out, "exact: all cuts were searched, none proves more")
    else:
        layout.line(out, f"not exact: {least['looser']}; what no program can beat may be higher")
        if command:
            layout.line(out, "the exact one:")
            layout.command(out, command)
    if result.get("arrivals"):
        last, after = f"{result['last_arrival_us']:,.2f}", f"{least['after_last_us']:,.2f}"
        layout.line(out, f"arrivals: {result['arrivals']}; the last rank at {last} us, {after} us are left then")
    names = least["certificate"]
    if names:
        layout.heading(out, "The cut", "what must leave these nodes cannot leave them faster")
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        layout.line(out, ", ".join(names[:MOST_NAMES]) + more)
