"""Claims of papers beside what was measured."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.reports import layout
from ringwright.units import format_size


def write(result: dict[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.reproduce/1`` for a terminal."""
    out = layout.console(file, width=width)
    papers = result["papers"]
    rows = [row for paper in papers for row in paper.get("rows", ())]
    bands = [paper["inside"] for paper in papers if "rows" not in paper]
    told = [f"{sum(row['pass'] for row in rows)} of {len(rows)} rows pass"] if rows else []
    told += [f"{sum(bands)} of {len(bands)} inside their bands"] if bands else []
    layout.line(out, "; ".join(told), style="bold", indent=0)
    for paper in papers:
        said = ("inside", "OUTSIDE") if "rows" not in paper else ("all pass", "not all pass")
        layout.heading(out, paper["slug"], said[not paper["inside"]])
        layout.line(out, f"claim: {paper['figure']}")
        layout.line(out, f"source: {paper['source']}", style="dim")
        if "rows" in paper:
            _rows(out, paper["rows"])
            continue
        for point in paper["points"]:
            times = f"{point['time_us']:,.0f} us"
            against = f", baseline {point['baseline_us']:,.0f} us" if "baseline_us" in point else ""
            layout.line(
                out, f"{format_size(point['size_bytes'])}: {paper['quantity']} {point['value']:.3g} ({times}{against})"
            )
        layout.line(out, f"band: {paper['low']:g} to {paper['high']:g}")
        if paper["note"]:
            layout.line(out, f"note: {paper['note']}")


def _rows(out: Any, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        claimed, got = (
            f"{value:.4g}" if isinstance(value, float | int) else str(value) for value in (row["claimed"], row["got"])
        )
        tolerance = row["tolerance"]
        band = f"in {tolerance[0]:g} to {tolerance[1]:g}" if isinstance(tolerance, list) else _allowed(tolerance)
        layout.line(out, f"{'pass' if row['pass'] else 'FAIL'}  {row['figure']}: claimed {claimed}; got {got}; {band}")
        if row["note"]:
            layout.line(out, row["note"], style="dim", indent=8)


def _allowed(tolerance: Any) -> str:
    return str(tolerance) if isinstance(tolerance, str) else f"within {tolerance * 100:g} %"
