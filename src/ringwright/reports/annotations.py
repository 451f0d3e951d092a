"""Failed checks as annotations of a workflow on GitHub: a line each, which it shows beside the change that was tested.

The form is that of workflow commands: ``::error title=TITLE::MESSAGE`` with per cent, carriage return and line feed escaped, in a
title the colon and the comma too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ringwright.reports import layout

ON_GITHUB = "GITHUB_ACTIONS"


def wanted(asked: bool, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether annotations are to be written: where they are asked for, and in a workflow on GitHub."""
    return asked or bool(environment.get(ON_GITHUB))


def annotation(severity: str, title: str, message: str) -> str:
    """Return one annotation; ``severity`` is notice, warning or error."""
    return f"::{severity} title={_escaped(title, ':,')}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    lines = "\n".join(map(layout.printable, text.splitlines()))
    for character in "%\r\n" + more:
        lines = lines.replace(character, f"%{ord(character):02X}")
    return lines
