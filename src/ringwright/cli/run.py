"""``ringwright run``: record any job without touching it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.ground import called
from ringwright.ground.units import parse_time


def run(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    output: options.Folder = None,
    nccl: Annotated[Literal["full", "light", "off"], options.IN_RECORDING] = "full",
    flight: Annotated[bool, options.IN_RECORDING] = False,
    profile: Annotated[str, options.IN_RECORDING] = "",
    plugin: Annotated[Path | None, options.IN_RECORDING] = None,
    no_hook: Annotated[bool, options.IN_RECORDING] = False,
    no_layers: Annotated[bool, options.IN_RECORDING] = False,
    no_mpi: Annotated[bool, options.IN_RECORDING] = False,
    job: str = "",
    timeout: Annotated[str, options.IN_LIMITS] = "",
    stall: Annotated[str, options.IN_LIMITS] = "300s",
    no_summary: bool = False,
    force: options.Force = False,
    json: options.Json = False,
) -> int:
    """Record what a command (torchrun, mpirun, python) communicates; its output and exit code stay its own.

    Parameters
    ----------
    command
        The job, behind --: run -o DIR -- torchrun --nproc-per-node 2 train.py
    output
        Folder of the recording (ringwright-run-N in this folder, unless given).
    nccl
        NCCL's log, a file per process: full has every call, light only set-up.
    flight
        PyTorch's Flight Recorder: a dump per rank at the end, and when the job stands still.
    profile
        PyTorch profiler and execution trace: 5:2 skips five iterations and records two.
    plugin
        The NCCL profiler plug-in (verb plugin); used if it lies in this folder.
    no_hook
        Leave PyTorch's process groups alone.
    no_layers
        Record no layer and phase: without hooks on modules.
    no_mpi
        Leave MPI programs alone.
    job
        Name of the job, so that its launchers on several nodes share a folder (Slurm's is known).
    timeout
        End the job after this time; exit code 5.
    stall
        Say who waits for whom when nothing was recorded for so long; 0 for never.
    no_summary
        Only record.
    force
        Record over an older recording.
    json
        Print one JSON object instead (schema ringwright.run/1), on standard output after the job's own.

    Examples
    --------
    ringwright run -o job --force -- python3 -c "print('a job')"
    """
    from ringwright.capture.folder import free_folder
    from ringwright.capture.record import record
    from ringwright.capture.settings import Options, profile_of
    from ringwright.reports import recorded

    options = Options(
        hook=not no_hook,
        layers=not no_layers,
        nccl=nccl,
        flight=flight,
        plugin=plugin,
        mpi=not no_mpi,
        profile=profile_of(profile) if profile else None,
    )
    done = record(
        command,
        output or free_folder(Path.cwd()),
        options,
        job=job,
        force=force,
        summarised=not no_summary,
        timeout_s=parse_time(timeout) if timeout else None,
        stall_s=parse_time(stall) or None,
        tell=lambda words: print(called.as_called(f"ringwright: {words}"), file=sys.stderr),
    )
    if json:
        reading.print_json(done.document())
    else:
        recorded.write(done, sys.stderr)
    return done.ended.code
