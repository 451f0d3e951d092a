"""The answer that a report on a terminal begins with: its sentence, the figures behind it, what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.reports import layout

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.analysis.summary_view import SeenAnswer


def write(out: Console, answer: SeenAnswer) -> None:
    """Write the answer."""
    layout.line(out, answer.sentence, style="bold", indent=0)
    figures = "; ".join(f"{each.name} {each.value}" for each in answer.figures)
    if figures:
        layout.line(out, figures, style="dim", indent=2)
    if answer.command:
        layout.command(out, answer.command)
