"""``ringwright run``: record any job without touching it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.ground import invocation
from ringwright.ground.units import parse_time

if TYPE_CHECKING:
    from ringwright.capture.settings import Options


@Parameter(name="*", group=options.RECORDING)
@dataclass(frozen=True, kw_only=True)
class RecordedParts:
    """What of a job is recorded."""

    nccl: Annotated[
        Literal["full", "light", "off"],
        Parameter(help="NCCL's log, a file per process: full has every call, light only set-up."),
    ] = "full"
    flight: Annotated[
        bool, Parameter(help="PyTorch's Flight Recorder: a dump per rank at the end, and when the job stands still.")
    ] = False
    profile: Annotated[
        str, Parameter(help="PyTorch profiler and execution trace: 5:2 skips five iterations and records two.")
    ] = ""
    plugin: Annotated[
        Path | None, Parameter(help="The NCCL profiler plug-in (verb plugin); used if it lies in this folder.")
    ] = None
    no_hook: Annotated[bool, Parameter(help="Leave PyTorch's process groups alone.")] = False
    no_layers: Annotated[bool, Parameter(help="Record no layer and phase: without hooks on modules.")] = False
    no_mpi: Annotated[bool, Parameter(help="Leave MPI programs alone.")] = False

    def settings(self) -> Options:
        """Return them as the recorder takes them."""
        from ringwright.capture.settings import Options, profile_of

        profile = profile_of(self.profile) if self.profile else None
        hook, layers, mpi = not self.no_hook, not self.no_layers, not self.no_mpi
        return Options(hook, layers, self.nccl, self.flight, profile, self.plugin, mpi)


AS_USUAL = RecordedParts()


def run(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    output: options.Folder = None,
    recording: RecordedParts = AS_USUAL,
    local: Annotated[Path | None, Parameter(group=options.OUTPUT)] = None,
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
    local
        Folder of this node's own disk to write into while the job runs; what was recorded is brought to -o at the end.
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
    from ringwright.reports import recording_summary

    done = record(
        command,
        output or free_folder(Path.cwd()),
        recording.settings(),
        job=job,
        local=local,
        force=force,
        summarised=not no_summary,
        timeout_s=parse_time(timeout) if timeout else None,
        stall_s=parse_time(stall) or None,
        tell=lambda words: print(invocation.as_called(f"ringwright: {words}"), file=sys.stderr),
    )
    if json:
        reading.print_json(done.document())
    else:
        recording_summary.write(done, sys.stderr)
    return done.ended.code
