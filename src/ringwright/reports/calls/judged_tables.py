"""How near simulated times come to measured tables, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.calls import mpi_ranks

WORST = 10  # tables that are named
LINES = 3  # of a table that are named


def write(result: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.accuracy/2``: a line by class and region, the worst tables, what was left out."""
    out = layout.console(file, width=width)
    if result["rows"]:
        _nccl(out, result)
    for each in result["mpi"]:
        mpi_ranks.write(out, each)
    if result["refused"]:
        _refused(out, result["refused"])


def _refused(out: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write what is not judged, and why: a line for a table that is not placed, one for all rows of a table under one law."""
    rows_of: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in rows:
        rows_of.setdefault((each["case"], each["law"] or each["reason"]), []).append(each)
    layout.line(out, f"refused, {len(rows):,} tables or rows of them:", style="bold", indent=0)
    shown = [
        [
            case,
            ", ".join(str(each["line"]) for each in group[:LINES] if each["line"])
            + (f" and {len(group) - LINES:,} more" if len(group) > LINES else ""),
            group[0]["law"],
            group[0]["reason"],
        ]
        for (case, _), group in rows_of.items()
    ]
    layout.table(out, ["table", "lines", "law", "why"], shown, left=("table", "lines", "law", "why"))


def _nccl(out: Any, result: Mapping[str, Any]) -> None:
    """Write a line by class and region, how many choices are right, and the worst tables."""
    cases = {row["case"] for row in result["rows"]}
    layout.line(
        out,
        f"{len(result['rows']):,} measured sizes in {len(cases)} tables, {result['engine']}",
        style="bold",
        indent=0,
    )
    rows = [
        [
            line["class"],
            line["region"],
            "own" if line["calibrated"] else "none",
            f"{line['geomean_error']:.0%}",
            "" if line["coverage"] is None else f"{line['coverage']:.0%}",
            "" if line["width"] is None else f"{line['width']:.1f}x",
            line["systems"],
            line["n"],
        ]
        for line in result["summary"]
    ]
    heads = ["class", "size", "tables", "error", "in 90 %", "p95/p05", "systems", "sizes"]
    layout.table(out, heads, rows, left=("class", "size", "tables"))
    layout.line(
        out,
        "error: of a typical size, the mean of the systems; in 90 %: measured sizes inside the interval",
        style="dim",
    )
    if result["learnt_from"]:
        names = ", ".join(result["learnt_from"])
        layout.line(
            out,
            f"what ships was learnt from tables of {names} too: these errors are of a fit, not of a prediction",
            style="dim",
        )
    for each in result["choices"]:
        if each["pairs"]:
            right = "none right" if each["right"] is None else f"of these {each['right']:.0%} right"
            layout.line(
                out,
                f"which of two is faster, measured {each['apart']:g} times apart: {each['pairs']:,} pairs,"
                f" {each['decided']:.0%} decided, {right}",
            )
    _worst(out, result["rows"])


def _worst(out: Any, rows: list[Mapping[str, Any]]) -> None:
    """Write the sizes that are furthest off, one a table."""
    worst: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["case"] not in worst or _off(row) > _off(worst[row["case"]]):
            worst[row["case"]] = row
    named = sorted(worst.values(), key=_off, reverse=True)[:WORST]
    layout.line(out, f"furthest off, {len(named)} of {len(worst)} tables:", style="bold", indent=0)
    shown = [
        [
            row["case"],
            format_size(row["size_bytes"]),
            f"{row['measured_us']:,.1f}",
            f"{row['time_us_p50']:,.1f}",
            "" if row["time_us_p05"] is None else f"{row['time_us_p05']:,.1f} - {row['time_us_p95']:,.1f}",
            f"{row['time_us_p50'] / row['measured_us']:.2f}",
        ]
        for row in named
    ]
    layout.table(out, ["table", "size", "measured us", "simulated us", "90 % within", "ratio"], shown, left=("table",))


def _off(row: Mapping[str, Any]) -> float:
    ratio: float = row["time_us_p50"] / row["measured_us"]
    return max(ratio, 1 / ratio)
