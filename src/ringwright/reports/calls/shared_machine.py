"""Groups of one job at the same time, for a terminal: each call by both plans, the bound of all, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.calls.fault_costs import write_faults
from ringwright.reports.calls.synthesised import VERIFIED

if TYPE_CHECKING:
    from ringwright.search.concurrent_groups import SharedMachine


def write(result: SharedMachine, file: TextIO, *, width: int | None = None) -> None:
    """Write the table of the calls, then all of them together beside what is proved."""
    out = layout.console(file, width=width)
    layout.line(out, f"groups at the same time on {result.fabric}, {result.link_model} links", style="bold", indent=0)
    write_faults(out, result.asked)
    rows = [
        [
            f"{row.op} on {row.axis}",
            f"{row.groups:,} x {row.ranks:,}",
            format_size(row.size_bytes),
            f"{row.alone_us:,.2f}",
            f"{row.beside_us:,.2f}",
            f"{row.together_us:,.2f}",
            VERIFIED[row.verified],
        ]
        for row in result.rows
    ]
    columns = ["call", "groups", "size", "alone us", "at once us", "planned as one us", "verified"]
    layout.table(out, columns, rows, left=("call",))
    layout.line(out, "alone: nothing else on the machine; at once: the same programs, all calls together")
    if result.stopped:
        layout.line(out, "stopped: a search was ended before its work was done; the best so far is shown")
    layout.heading(out, "All calls")
    layout.line(out, result.verdict)
    bound = result.bound
    gap = layout.percent(max(result.gap, 0.0))
    layout.line(out, f"bound {bound.time_s * 1e6:,.2f} us, gap {gap}, by {bound.kind}: {bound.ground}")
    layout.line(out, f"trees over the machine's routes take {result.least_us:,.2f} us at least")
