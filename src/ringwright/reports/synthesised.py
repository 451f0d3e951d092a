"""What a search for programs found, for a terminal: the programs, the cut that proves the bound, and everyone else's time."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.reports import layout
from ringwright.units import format_size

MOST_NODES = 24
MOST_RIVALS = 12


def write(result: dict[str, Any], file: TextIO, *, labels: list[str] | None = None, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.synthesise/1``; ``labels`` are names of the nodes of the first certificate."""
    out = layout.console(file, width=width)
    title = f"{result['collective']} on {result['fabric']}, {result['ranks']:,} ranks, {result['link_model']} links"
    layout.line(out, title, style="bold", indent=0)
    columns = ["method", "size", "time us", "bound us", "gap", "algbw GB/s", "steps", "chunks", "trees", "height"]
    rows = [
        [
            row["method"],
            format_size(row["size_bytes"]),
            f"{row['time_us']:,.2f}",
            f"{row['bound_us']:,.2f}",
            layout.percent(max(row["gap"], 0.0)),
            f"{row['algbw_gbs']:,.2f}",
            f"{row['steps']:,}",
            f"{row['chunks']:,}",
            row["trees"],
            row["height"],
            f"{row['synthesis_s']:.2f}" + (" (kept)" if row["kept"] else ""),
            {True: "yes", False: "NO", None: "not run"}[row["verified"]],
        ]
        for row in result["rows"]
    ]
    layout.table(out, [*columns, "search s", "verified"], rows, left=("method",))
    for each in result["declined"]:
        layout.line(out, f"{each['method']} at {format_size(each['size_bytes'])}: {each['reason']}")
    if any(row["stopped"] for row in result["rows"]):
        layout.line(out, "stopped: the budget ended a search; the best so far is shown")
    _proof(out, result, labels or [])
    _regions(out, result)
    _rivals(out, result)


def _proof(out: Any, result: dict[str, Any], labels: list[str]) -> None:
    row = max(result["rows"], key=lambda each: each["size_bytes"])
    proof = row["certificate"]
    layout.heading(out, "The bound", f"of {format_size(row['size_bytes'])}, by {row['bound_kind']}")
    if proof["crossing"]:
        size, rate = proof["demand_bytes"], proof["capacity_bytes_per_s"] / 1e9
        layout.line(out, f"{size:,.0f} B must get {proof['crossing']} these nodes, over {rate:,.6g} GB/s:")
    if labels:
        more = f" and {len(labels) - MOST_NODES:,} more" if len(labels) > MOST_NODES else ""
        layout.line(out, ", ".join(labels[:MOST_NODES]) + more)


def _regions(out: Any, result: dict[str, Any]) -> None:
    if not result["regions"]:
        return
    layout.heading(out, "The fastest at each size")
    rows = [
        [each["algorithm"], format_size(each["from_bytes"]), format_size(each["to_bytes"])]
        for each in result["regions"]
    ]
    layout.table(out, ["algorithm", "from", "to"], rows, left=("algorithm",))


def _rivals(out: Any, result: dict[str, Any]) -> None:
    rivals = [row for row in result["rivals"] if row["time_us"] is not None]
    if not rivals:
        return
    size = max(row["size_bytes"] for row in rivals)
    mine = [row for row in rivals if row["size_bytes"] == size]
    layout.heading(out, "Others", f"{format_size(size)}, same engine and links; times the best above")
    rows = [
        [row["algorithm"], row["kind"], f"{row['time_us']:,.2f}", f"{row['ratio']:.2f}x" if row["ratio"] else None]
        for row in mine[:MOST_RIVALS]
    ]
    layout.table(out, ["algorithm", "kind", "time us", "ratio"], rows, left=("algorithm", "kind"))
    layout.cut(out, MOST_RIVALS, len(mine), "algorithms")
    declined = sum(1 for row in result["rivals"] if row["time_us"] is None and row["size_bytes"] == size)
    if declined:
        layout.line(out, f"{declined} algorithms have no program here; --json says why", style="dim")
