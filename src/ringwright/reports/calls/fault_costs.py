"""Which faults were asked for, and what they cost beside the healthy answer: the head of every simulated answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ringwright.reports import layout

if TYPE_CHECKING:
    from rich.console import Console

SAME = 5e-5  # of a time, below which faults change nothing that is printed
MOST_COSTS = 4  # algorithms or policies whose faults are told


def faults_asked(asked: Mapping[str, Any]) -> list[str]:
    """Return a line of the faults that ``asked`` of an answer holds; none where there are none."""
    lines = ", ".join(f"'{line}'" for line in asked["faults"])
    return [f"faults: {lines}"] if lines else []


def write_faults(out: Console, asked: Mapping[str, Any]) -> None:
    """Write that line."""
    for line in faults_asked(asked):
        layout.line(out, line, style="yellow", indent=0)
