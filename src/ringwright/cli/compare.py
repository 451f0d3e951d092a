"""``ringwright compare``: a benchmark's capture beside its simulation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import reading


def compare(
    capture: Path,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    force: bool = False,
    json: bool = False,
) -> int:
    """Calibrate on half of a benchmark's sizes, predict the rest under the same faults, and show the error of each.

    Parameters
    ----------
    capture
        The folder of ringwright bench --lab ... --out.
    output
        Write one HTML page with both Traces side by side.
    force
        Overwrite the page.
    json
        Print one JSON object instead (schema ringwright.compare/1).
    """
    from ringwright.reports import compared
    from ringwright.studies import compare as study

    with reading.busy("simulating"):
        found = study.compare(capture)
    if output is not None:
        reading.write_page(output, compared.page(found, capture, reading.command_line()), force=force)
    if json:
        reading.print_json(found.document())
    else:
        compared.write(found, capture, sys.stdout)
    return 0
