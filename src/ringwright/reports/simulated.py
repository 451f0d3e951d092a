"""What a simulation found: an nccl-tests table, or algorithms side by side; what limits each; what is left out."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO

from ringwright.reports import layout
from ringwright.units import format_count, format_size

if TYPE_CHECKING:
    from rich.console import Console

SLACK = 1.005  # times this close are called equal


def write(result: dict[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.simulate/1`` for a terminal."""
    out = layout.console(file, width=width)
    rows = result["rows"]
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    ground = f"{result['collective']} on {result['fabric']}, {format_count(result['ranks'])} ranks"
    engines = ", ".join(dict.fromkeys(row["engine"] for row in rows))
    faults = f", {result['faults']} changes by faults" if result["faults"] else ""
    layout.line(
        out, f"simulated: {ground}{faults}; engine {engines}, latency {result['latency_model']}", style="bold", indent=0
    )
    if result["provenance"]:
        layout.line(out, f"rates: {result['provenance']}", style="dim", indent=0)
    if len(names) == 1:
        _alone(out, rows)
    else:
        _side_by_side(out, rows, names)
    _limits(out, rows, names)
    layout.heading(out, "Left out")
    layout.line(out, "; ".join(result["left_out"]))


def _alone(out: Console, rows: list[dict[str, Any]]) -> None:
    columns = ["size", "time us", "algbw GB/s", "busbw GB/s", "bound us", "of bound"]
    layout.heading(out, rows[0]["algorithm"], "bandwidths as in nccl-tests")
    layout.table(out, columns, [
        [format_size(row["size_bytes"]), time(row["time_us"]), f"{row['algbw_gbs']:.2f}", f"{row['busbw_gbs']:.2f}",
         time(row["bound_us"]), share(row)]
        for row in rows
    ])  # fmt: skip


def _side_by_side(out: Console, rows: list[dict[str, Any]], names: list[str]) -> None:
    layout.heading(
        out,
        "Time in us",
        "the fastest of each size is starred; bound: no algorithm without in-network reduction is faster",
    )
    table = []
    for size, group in groupby(sorted(rows, key=lambda row: int(row["size_bytes"])), key=lambda row: row["size_bytes"]):
        found = {row["algorithm"]: row for row in group}
        best = min(row["time_us"] for row in found.values())
        cells = [
            time(found[name]["time_us"]) + ("*" if found[name]["time_us"] <= best * SLACK else " ") for name in names
        ]
        winner = min(found.values(), key=lambda row: row["time_us"])
        table.append([format_size(size), *cells, time(winner["bound_us"]), f"{winner['busbw_gbs']:.2f}"])
    layout.table(out, ["size", *names, "bound", "best busbw GB/s"], table)


def _limits(out: Console, rows: list[dict[str, Any]], names: list[str]) -> None:
    """Say, at the smallest and the largest size, what each algorithm ran as and what it waited for."""
    layout.heading(out, "What limits it", "busiest link and its share of the time; time that messages waited for links")
    table = []
    for name in names:
        mine = [row for row in rows if row["algorithm"] == name]
        for row in dict.fromkeys((0, len(mine) - 1)):
            found = mine[row]
            how = found["choice"] or f"{found['messages']:.0f} steps"
            table.append(
                [name, format_size(found["size_bytes"]), how, found["bottleneck"], f"{100 * found['utilisation']:.0f} %",
                 f"{100 * found['waited']:.0f} %"]
            )  # fmt: skip
    layout.table(
        out, ["algorithm", "size", "as", "busiest", "busy", "waiting"], table, left=("algorithm", "as", "busiest")
    )


def time(time_us: float) -> str:
    """Return microseconds with as many digits as matter."""
    return f"{time_us:,.0f}" if time_us >= 1000 else f"{time_us:.1f}" if time_us >= 10 else f"{time_us:.2f}"


def share(row: dict[str, Any]) -> str:
    """Return how much of the time the bound explains."""
    return f"{100 * row['bound_us'] / row['time_us']:.0f} %" if row["time_us"] else "-"
