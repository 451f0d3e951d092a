"""The doctor's findings and the kinds of files, as text."""

from __future__ import annotations

from typing import Any, TextIO

from ringwright.reports import layout

_MARKS = {"good": "ok", "missing": "NO", "note": "--"}
_STYLES = {"good": "green", "missing": "red", "note": "yellow"}


def write(document: dict[str, Any], file: TextIO) -> None:
    """Write one paragraph per check: its state, what was found, what that means, what to do."""
    out = layout.console(file)
    for check in document["checks"]:
        head = f"{_MARKS[check['state']]}  {check['about']}: {check['found']}"
        layout.line(out, head, style=_STYLES[check["state"]], indent=0)
        layout.line(out, check["means"], indent=4)
        if check["remedy"]:
            layout.command(out, check["remedy"])


def write_kinds(document: dict[str, Any], file: TextIO) -> None:
    """Write a row per file and the line about the Trace."""
    out = layout.console(file)
    rows = [(each["kind"], each["what"], each["file"]) for each in document["files"]]
    layout.table(out, ("kind", "what", "file"), rows, left=("kind", "what", "file"))
    layout.line(out, document["read"], indent=0)
