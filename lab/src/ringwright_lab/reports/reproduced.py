"""Claims of papers beside what was measured, by what each row proves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from ringwright.ground.documents import read_json
from ringwright.reports import layout
from ringwright_lab.papers.figures.kinds import MEANING, NOT_PREDICTABLE, sentence
from ringwright_lab.papers.reproduced_view import Reproduced, ReproducedRow

WHOLE = 1e15  # below it a float holds every whole number


def write(told: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.reproduce/1`` for a terminal."""
    result = read_json(Reproduced, told)
    out = layout.console(file, width=width)
    papers = result.papers
    layout.line(out, f"rows that pass: {sentence(row for each in papers for row in each.rows)}", style="bold", indent=0)
    for paper in papers:
        layout.heading(out, paper.slug, sentence(paper.rows))
        layout.line(out, f"claim: {paper.figure}")
        layout.line(out, f"source: {paper.source}", style="dim")
        if paper.note:
            layout.line(out, f"note: {paper.note}")
        for row in paper.claims:
            _row(out, row)
    layout.heading(out, "Kinds", "what a row that passes proves")
    for each in result.kinds:
        layout.line(out, f"{each.kind}: {MEANING[each.kind]}")


def _row(out: Any, row: ReproducedRow) -> None:
    if row.kind == NOT_PREDICTABLE:
        layout.line(out, f"-     {row.figure}: claimed {shown(row.claimed)}; {NOT_PREDICTABLE}, because {row.because}")
        return
    outcome = "pass" if row.passes else "FAIL"
    claimed, got = shown(row.claimed), shown(row.got)
    within = allowed(row.tolerance)
    layout.line(out, f"{outcome}  {row.kind}: {row.figure}: claimed {claimed}; got {got}; {within}")
    if row.note:
        layout.line(out, row.note, style="dim", indent=8)


def shown(value: Any) -> str:
    """Return a number with four digits, a whole one with all, a sentence as it stands, and "nothing" for None."""
    if value is None:
        return "nothing"
    if isinstance(value, float | int) and abs(value) < WHOLE and value == int(value):
        return f"{value:.0f}"
    return f"{value:.4g}" if isinstance(value, float | int) else str(value)


def allowed(tolerance: Any) -> str:
    """Return a tolerance in words: a band, a relative number in percent, or "exact"."""
    if isinstance(tolerance, list):
        return f"in {tolerance[0]:g} to {tolerance[1]:g}"
    return str(tolerance) if isinstance(tolerance, str) else f"within {tolerance * 100:g} %"
