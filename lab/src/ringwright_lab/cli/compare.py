"""``ringwright compare``: a benchmark's capture beside its simulation."""

from __future__ import annotations

import sys
from pathlib import Path

from ringwright.cli import options, progress, reading
from ringwright.ground.errors import UsageError


def compare(
    capture: Path | None = None,
    *,
    jobs: Path | None = None,
    output: options.Target = None,
    force: options.Force = False,
    json: options.Json = False,
    executor: options.Executor = None,
) -> int:
    """Calibrate on half of a benchmark's sizes, predict the rest under the same faults, and show the error of each.

    With --jobs, predict the training steps that a table holds, and show the error of each.

    Parameters
    ----------
    capture
        The folder of bench --lab ... -o FOLDER.
    jobs
        A CSV of measured training steps instead (gpus, sequence, iteration_ms and the like).
    output
        Write one HTML page with both Traces side by side.
    force
        Overwrite the page.
    json
        Print one JSON object instead (schema ringwright.compare/1; of jobs: ringwright.step-accuracy/1).

    Examples
    --------
    ringwright bench all-reduce --ranks 2 --lab switch:2,rate=100Mb/s -b 64K -e 1M -f 4 -n 3 -o run1 && ringwright compare run1
    """
    if (capture is None) == (jobs is None):
        raise UsageError("name one folder or one table", remedy="ringwright compare FOLDER, or --jobs FILE.csv")
    if capture is None or jobs is not None:
        return _jobs(jobs or Path(), json=json, executor=executor)
    if executor is not None:
        raise UsageError(
            "a benchmark is simulated here", remedy="leave --executor out: it shares out the rows of --jobs"
        )
    from ringwright_lab.bench import compare as study
    from ringwright_lab.reports import compared

    with progress.busy("simulating"):
        comparison = study.compare(capture)
    if output is not None:
        reading.write_page(output, compared.page(comparison, capture, reading.command_line()), force=force)
    if json:
        reading.print_json(comparison.document())
    else:
        compared.write(comparison, capture, sys.stdout)
    return 0


def _jobs(table: Path, *, json: bool, executor: str | None) -> int:
    from ringwright.accuracy import jobs as accuracy
    from ringwright.executors.fan_out import fan_out
    from ringwright.jobs import step_tables
    from ringwright_lab.reports import step_accuracy

    rows = step_tables.read(table)
    with progress.steps("simulating") as advance, fan_out(executor) as fan:
        document = accuracy.document(*accuracy.judge(rows, progress=advance, answers=True, executor=fan))
    if json:
        reading.print_json(document | {"executor": fan.account.document()})
    else:
        step_accuracy.write(document, sys.stdout)
    return 0
