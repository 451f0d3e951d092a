"""The verdict on a program: legal or not, each broken rule with its rank, step and chunk."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.reports import layout

MOST_ROWS = 12


def write(result: dict[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.verify/1`` for a terminal."""
    out = layout.console(file, width=width)
    verdict = "legal" if result["valid"] else "not legal"
    what = f"{result['collective']} over {result['ranks']} ranks" if result["collective"] else "unreadable"
    apart = [row["message"] for row in result["errors"] if row["rule"] == "scope"]
    if apart:
        verdict, what = "not judged", apart[0]
    layout.line(out, f"{verdict}: {result.get('file', '')} ({what})", style="bold", indent=0)
    broken = [row for row in result["errors"] if row["rule"] != "scope"]
    for title, violations in (("Broken rules", broken), ("Warnings", result.get("warnings", []))):
        if not violations:
            continue
        layout.heading(out, title)
        rows = [
            [row["rule"], *(_number(row[name]) for name in ("rank", "step", "chunk")), row["message"]]
            for row in violations
        ]
        layout.table(out, ["rule", "rank", "step", "chunk", "what"], rows[:MOST_ROWS], left=("rule", "what"))
        if len(rows) > MOST_ROWS:
            layout.line(out, f"and {len(rows) - MOST_ROWS} more")


def _number(value: int | None) -> str:
    return "" if value is None or value < 0 else str(value)
