"""``ringwright sweep``: a grid of recorded runs of real models, in one table."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ringwright.cli import options, progress, reading
from ringwright.ground import drafts
from ringwright.ground.errors import EXIT_GATE, EXIT_GOOD, UsageError
from ringwright.ground.units import parse_time


def sweep(
    grid: Path,
    *,
    output: options.NeededFolder,
    timeout: str = "300s",
    retry: bool = False,
    executor: options.Executor = None,
    to: str = "",
    force: options.Force = False,
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
    to
        Write a script instead, into -o FILE.sh: sbatch:partition=P,nodes=4,time=30,account=A runs this sweep on Slurm with
        --executor mpi (usual) or slurm:..., into the folder FILE beside it.
    force
        Overwrite the script if it exists.
    json
        Print one JSON object instead (schema ringwright.sweep/1).

    Examples
    --------
    echo 'axes.model = ["llama"]' > grid.toml && ringwright sweep grid.toml -o sweep1
    """
    if to:
        more = ["--timeout", timeout, *(["--retry"] if retry else [])]
        told_of = _written(grid, output, to, executor or "mpi", more, force=force)
        if json:
            reading.print_json(told_of)
        else:
            print(f"wrote {output}; next: sbatch {shlex.quote(str(output))}")
        return EXIT_GOOD
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


def _written(grid: Path, output: Path, to: str, executor: str, more: list[str], *, force: bool) -> dict[str, str]:
    """Write the script that runs the sweep on a cluster, and return what it is and which folder it will fill."""
    from ringwright.formats.exports.placement import claim_file
    from ringwright_lab import sweep as study
    from ringwright_lab.sweep.batch_script import batch_script, batch_settings

    if output.suffix != ".sh":
        raise UsageError(
            f"{output} is no name of a script", remedy="name it -o FILE.sh; the sweep's folder is FILE then"
        )
    study.read_grid(grid)  # what is wrong with it is told here, not on the cluster
    folder = output.absolute().with_suffix("")
    text = batch_script(batch_settings(to), [str(grid.absolute()), "-o", str(folder), *more], executor)
    drafts.write(claim_file(output, force=force), text, mode=0o755)
    return {"schema": "ringwright.sweep-script/1", "script": str(output), "folder": str(folder)}
