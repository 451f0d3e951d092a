"""The gate's answer: a line per check and one that sums them up; in a workflow on GitHub an annotation per check that failed."""

from __future__ import annotations

from typing import TextIO

from ringwright.analysis.compared.gate_document import CheckResult, GateAnswer
from ringwright.reports import layout
from ringwright.reports.annotations import annotation


def write(result: GateAnswer, file: TextIO, *, annotate: bool = False) -> None:
    """Write a ``ringwright.check/1`` object; with ``annotate`` each check that failed is an annotation too."""
    out = layout.console(file)
    for check in result["checks"]:
        state, style = ("pass", "green") if check["passed"] else ("FAIL", "red")
        layout.line(out, f"{state}  {check['detail']}", style=style, indent=0)
    file.write(layout.printable(result["line"]) + "\n")
    if annotate:
        failed = [annotation("error", f"ringwright check, {each['check']}", each["detail"]) for each in _failed(result)]
        passed = annotation("notice", "ringwright check", result["line"])
        file.writelines(f"{line}\n" for line in failed or [passed])


def _failed(result: GateAnswer) -> list[CheckResult]:
    return [each for each in result["checks"] if not each["passed"]]
