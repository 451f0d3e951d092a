"""``ringwright run``: record any job without touching it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ringwright.cli import reading
from ringwright.units import parse_time


def run(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    nccl: Literal["full", "light", "off"] = "full",
    flight: bool = False,
    profile: str = "",
    plugin: Path | None = None,
    no_hook: bool = False,
    no_layers: bool = False,
    no_mpi: bool = False,
    job: str = "",
    timeout: str = "",
    stall: str = "300s",
    no_summary: bool = False,
    force: bool = False,
    json: bool = False,
) -> int:
    """Record what a command (torchrun, mpirun, python) communicates; its output and exit code stay its own.

    Parameters
    ----------
    command
        The job, behind --: ringwright run --out DIR -- torchrun --nproc-per-node 2 train.py
    out
        Folder of the recording (ringwright-run-N in this folder, unless given).
    nccl
        NCCL's log, a file per process: full has every call, light only set-up.
    flight
        PyTorch's Flight Recorder: a dump per rank at the end, and when the job stands still.
    profile
        PyTorch profiler and execution trace: 5:2 skips five iterations and records two.
    plugin
        The NCCL profiler plug-in (ringwright plugin build); used if it lies in this folder.
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
    """
    from ringwright.capture.folder import free_folder
    from ringwright.capture.settings import Options, profile_of
    from ringwright.reports import recorded
    from ringwright.studies.record import record

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
        out or free_folder(Path.cwd()),
        options,
        job=job,
        force=force,
        summarised=not no_summary,
        timeout_s=parse_time(timeout) if timeout else None,
        stall_s=parse_time(stall) or None,
        tell=lambda words: print(f"ringwright: {words}", file=sys.stderr),
    )
    if json:
        reading.print_json(done.document())
    else:
        recorded.write(done, sys.stderr)
    return done.ended.code
