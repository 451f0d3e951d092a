"""``ringwright sweep``: a grid of recorded runs of real models, in one table."""

from __future__ import annotations

import sys
from pathlib import Path

from ringwright.cli import options, progress, reading
from ringwright.ground import drafts
from ringwright.ground.errors import EXIT_GATE, EXIT_GOOD
from ringwright.ground.units import parse_time


def sweep(
    grid: Path,
    *,
    output: options.NeededFolder,
    timeout: str = "300s",
    retry: bool = False,
    executor: options.Executor = None,
    json: options.Json = False,
) -> int:
    """Run each point of a grid (model, parallel form, ranks, batch, fault, backend ...) that is not there yet, and compare them.

    Points whose library does not run here (backend nccl or mpi) are simulated by its model, and marked so.

    Exit code 1 where a grid point failed, or what was recorded is not what the closed formulas say.

    Parameters
    ----------
    grid
        TOML file with [axes] (every combination), [all] and single ones in [[cell]].
    output
        Folder of the sweep: a folder per grid point, results.parquet, report.html. A sweep that was cut short goes on.
    timeout
        For each grid point.
    retry
        Run grid points again that failed.
    json
        Print one JSON object instead (schema ringwright.sweep/1).

    Examples
    --------
    echo 'axes.model = ["llama"]' > grid.toml && ringwright sweep grid.toml -o sweep1
    """
    from ringwright_lab import sweep as study
    from ringwright_lab.reports import swept
    from ringwright_lab.sweep.run import check_folder
    from ringwright_lab.sweep.table import gather

    wanted = study.read_grid(grid)
    check_folder(output)
    with drafts.grown(output), progress.steps("sweeping") as told:
        limit_s = parse_time(timeout)
        done = study.sweep(wanted, output, timeout_s=limit_s, retry=retry, progress=told, executor=executor)
        result = gather(output) | {"counts": done.counts, "executor": done.account.document()}
        result |= {"left_out": [[point.key, why] for point, why in wanted.left_out]}
        drafts.write(output / "report.html", swept.page(result, reading.command_line()))
    if json:
        reading.print_json(result)
    else:
        swept.write(result, sys.stdout)
    good = not done.counts["failed"] and result["agreeing"] == result["checked"]
    return EXIT_GOOD if good else EXIT_GATE
