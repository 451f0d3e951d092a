"""How MPI algorithms are ranked beside measured ones, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ringwright.reports import layout

if TYPE_CHECKING:
    from rich.console import Console


def write(out: Console, result: Mapping[str, Any]) -> None:
    """Write the object of schema ``ringwright.mpi-accuracy/1``."""
    layout.heading(out, "MPI algorithms", f"{result['engine']}; sizes that were not fitted")
    for row in result["prices"]:
        layout.line(
            out, f"{row['system']}, {row['transport']}: {row['message_us']:.2f} us a message, {row['gbs']:.1f} GB/s"
        )
    if not result["ranked"]:
        layout.line(out, "no size is left to judge: every second one is fitted, and there is one alone", style="yellow")
        return
    heads = ["system", "nodes", "collective", "algorithms", "sizes", "tau", "first two", "error", "error, large"]
    written = [
        [
            line["system"],
            line["nodes"],
            line["collective"],
            line["algorithms"],
            line["sizes"],
            "" if line["tau"] is None else f"{line['tau']:.2f}",
            _percent(line["first_two"]),
            _percent(line["error"]),
            _percent(line["error_large"]),
        ]
        for line in result["ranked"]
    ]
    layout.table(out, heads, written, left=("system", "nodes", "collective"))
    taus = [line["tau"] for line in result["ranked"] if line["tau"] is not None]
    ahead = [(line["first_two"], line["sizes"]) for line in result["ranked"] if line["first_two"] is not None]
    if taus and ahead:
        share = sum(each * sizes for each, sizes in ahead) / sum(sizes for _, sizes in ahead)
        layout.line(
            out,
            f"mean tau {fmean(taus):.2f}; fastest predicted among the first two: {share:.0%}, ties counted as misses",
        )
    layout.line(out, "tau: Kendall's, of predicted and measured order; error, large: 64 KiB and more", style="dim")
    if result["without_program"]:
        layout.line(out, f"no program for: {', '.join(sorted(result['without_program']))}", style="dim")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
