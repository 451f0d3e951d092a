"""The gate's answer: one line per check and a last line fit for a CI annotation."""

from __future__ import annotations

from typing import TextIO

from ringwright.analysis.gate_document import GateAnswer
from ringwright.reports import layout


def write(result: GateAnswer, file: TextIO, *, annotate: bool = False) -> None:
    """Write a ``ringwright.check/1`` object; with ``annotate`` the last line is a GitHub annotation."""
    out = layout.console(file)
    for check in result["checks"]:
        state, style = ("pass", "green") if check["passed"] else ("FAIL", "red")
        layout.line(out, f"{state}  {check['detail']}", style=style, indent=0)
    mark = f"::{'notice' if result['passed'] else 'error'} title=ringwright check::" if annotate else ""
    line = layout.printable(result["line"])
    file.write(mark + (line.replace("%", "%25") if annotate else line) + "\n")
