"""``ringwright accuracy``: simulated times beside measured ones, on any folder of tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from ringwright.cli import options, progress, reading
from ringwright.ground.errors import EXIT_INPUT


def accuracy(
    *folders: Path,
    calibrate: tuple[Path, ...] = (),
    engine: Literal["library", "closed-form", "events", "program"] = "library",
    json: options.Json = False,
    executor: options.Executor = None,
) -> int:
    """Judge simulated times on measured tables: error and what intervals cover for calls of NCCL, the order of MPI's algorithms.

    Parameters
    ----------
    folders
        Folders with pairs *_cases.csv and *_times.csv, or single *_times.csv: case, bytes and time_us in the latter;
        case, system, gpu, nodes, gpus_per_node, collective, intra_node, inter_node, software and settings in the former.
        Tables of MPI algorithms have system, nodes, collective, algorithm, bytes and median_us.
    calibrate
        Folders with tables to learn from: those of a system that is judged move its answers. Repeat it for several.
    engine
        library (the closed form of NCCL and what was learnt of it), closed-form (the same with data sheets alone), events (NCCL's
        program, message by message) or program (the same as if no library had it, on the transport's usual costs).
    json
        Print one JSON object instead (schema ringwright.accuracy/2), with every size.

    Examples
    --------
    ringwright accuracy measured/ --calibrate measured-before/
    """
    from ringwright.accuracy import judged

    with progress.steps("judging") as advance:
        result = judged.study(folders, calibrate, engine=engine, progress=advance, executor=executor)
    code = 0 if result["rows"] or any(each["ranked"] for each in result["mpi"]) else EXIT_INPUT
    if json:
        reading.print_json(result)
        return code
    from ringwright.reports.calls import judged_tables

    judged_tables.write(result, sys.stdout)
    return code
