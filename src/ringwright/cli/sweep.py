"""``ringwright sweep``: a grid of recorded runs of real models, in one table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright import drafts
from ringwright.cli import reading
from ringwright.errors import EXIT_GATE, EXIT_GOOD
from ringwright.units import parse_time


def sweep(
    grid: Path,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    timeout: str = "300s",
    retry: bool = False,
    json: bool = False,
) -> int:
    """Run each point of a grid (model, parallel form, ranks, batch, sequence, fault) that is not there yet, and compare them.

    Exit code 1 where a grid point failed, or what was recorded is not what the closed formulas say.

    Parameters
    ----------
    grid
        TOML file with [axes], [all] and [[cell]]; see docs/sweep.md.
    out
        Folder of the sweep: a folder per grid point, results.parquet, report.html. A sweep that was cut short goes on.
    timeout
        For each grid point.
    retry
        Run grid points again that failed.
    json
        Print one JSON object instead (schema ringwright.sweep/1).
    """
    from ringwright.reports import progress, swept
    from ringwright.studies import sweep as study
    from ringwright.studies.sweep.run import check_folder
    from ringwright.studies.sweep.table import gather

    wanted = study.read_grid(grid)
    check_folder(out)
    with drafts.grown(out), progress.bar("cells") as told:
        counts = study.sweep(wanted, out, timeout_s=parse_time(timeout), retry=retry, progress=told)
        result = gather(out) | {"counts": counts, "left_out": [[point.key, why] for point, why in wanted.left_out]}
        drafts.write(out / "report.html", swept.page(result, reading.command_line()))
    if json:
        reading.print_json(result)
    else:
        swept.write(result, sys.stdout)
    good = not counts["failed"] and result["agreeing"] == result["checked"]
    return EXIT_GOOD if good else EXIT_GATE
