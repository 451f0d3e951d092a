"""Claims of papers beside what was measured."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.reports import layout
from ringwright.units import format_size


def write(result: dict[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.reproduce/1`` for a terminal."""
    out = layout.console(file, width=width)
    papers = result["papers"]
    inside = sum(paper["inside"] for paper in papers)
    layout.line(out, f"{inside} of {len(papers)} inside their bands", style="bold", indent=0)
    for paper in papers:
        layout.heading(out, paper["slug"], "inside" if paper["inside"] else "OUTSIDE")
        layout.line(out, f"claim: {paper['figure']}")
        layout.line(out, f"source: {paper['source']}", style="dim")
        for point in paper["points"]:
            times = f"{point['time_us']:,.0f} us"
            against = f", baseline {point['baseline_us']:,.0f} us" if "baseline_us" in point else ""
            layout.line(
                out, f"{format_size(point['size_bytes'])}: {paper['quantity']} {point['value']:.3g} ({times}{against})"
            )
        layout.line(out, f"band: {paper['low']:g} to {paper['high']:g}")
        if paper["note"]:
            layout.line(out, f"note: {paper['note']}")
