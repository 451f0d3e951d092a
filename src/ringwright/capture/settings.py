"""What each source of a recording needs in the job's environment, and what of it is left as the user set it.

Sources: PyTorch's and NCCL's documented variables (``docs/how-to/run.md`` lists them); the recorder's own are RINGWRIGHT_CAPTURE
(the folder) and RINGWRIGHT_RECORD (options as JSON).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringwright.capture.mpi.build import build, environment
from ringwright.capture.mpi.launcher import with_variables
from ringwright.capture.nccl_profiler import FILE_NAME
from ringwright.capture.nccl_profiler import environment as plugin_environment
from ringwright.ground.errors import UsageError

SITE = Path(__file__).parent / "recorder" / "site"
RECORDS = 2000  # of the Flight Recorder's ring
NCCL_PARTS = {"full": "INIT,ENV,GRAPH,NET,TUNING,COLL,P2P", "light": "INIT,ENV,GRAPH,NET"}


@dataclass(frozen=True)
class Options:
    """What to record. ``nccl``: full, light or off; ``profile``: (iterations to skip, iterations to profile) or None."""

    hook: bool = True
    layers: bool = True
    nccl: str = "full"
    flight: bool = False
    profile: tuple[int, int] | None = None
    plugin: Path | None = None
    mpi: bool = True


@dataclass
class CaptureEnvironment:
    """Variables to set, and per source what was done about it."""

    variables: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)  # variables that the user had set


def settings(folder: Path, options: Options, given: Mapping[str, str]) -> CaptureEnvironment:
    """Return what to set for a job that records into ``folder``; raise UsageError for options that cannot be had."""
    environment = CaptureEnvironment()
    where = folder.absolute()
    environment.variables["RINGWRIGHT_CAPTURE"] = str(where)
    if options.hook:
        _hook(environment, options, given)
    if options.nccl != "off":
        _nccl(environment, where, options.nccl, given)
    if options.flight:
        _flight(environment, where, given)
    _plugin(environment, where, options.plugin, given)
    return environment


def through_mpi(
    command: Sequence[str], capture_environment: CaptureEnvironment, folder: Path, given: Mapping[str, str]
) -> list[str]:
    """Return an MPI launcher's command with the shim, and every variable handed to ranks on all nodes.

    Where the shim cannot be built the job runs without it, and ``found.sources`` says why.
    """
    try:
        library = build()
        capture_environment.variables |= environment(library, folder, given)
        capture_environment.sources["mpi"] = str(library)
    except UsageError as error:
        capture_environment.sources["mpi"] = f"off: {error.what}"
    return with_variables(command, capture_environment.variables)[0]


def profile_of(text: str) -> tuple[int, int]:
    """Return (iterations to skip, iterations to profile) of ``5:2`` or ``5``; raise UsageError otherwise."""
    skip, _, count = text.partition(":")
    if not skip.isdecimal() or not (count or "1").isdecimal() or int(count or "1") < 1 or len(text) > 12:
        raise UsageError(f"'{text}' is no range of iterations", remedy="--profile 5:2 skips five and profiles two")
    return int(skip), int(count or "1")


def _set(environment: CaptureEnvironment, given: Mapping[str, str], **variables: str) -> None:
    for name, value in variables.items():
        if name in given:
            environment.kept.append(name)
        else:
            environment.variables[name] = value


def _hook(environment: CaptureEnvironment, options: Options, given: Mapping[str, str]) -> None:
    rest = [entry for entry in given.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != str(SITE)]
    environment.variables["PYTHONPATH"] = os.pathsep.join([str(SITE), *rest])
    record = {"layers": options.layers, "flight": options.flight, "profile": options.profile}
    environment.variables["RINGWRIGHT_RECORD"] = json.dumps(record)
    environment.sources["calls"] = "PyTorch process groups: gloo with times, NCCL when enqueued"
    if options.profile:
        skip, count = options.profile
        environment.sources["profile"] = f"PyTorch profiler and execution trace of {count} iterations after {skip}"


def _nccl(environment: CaptureEnvironment, where: Path, parts: str, given: Mapping[str, str]) -> None:
    if parts not in NCCL_PARTS:
        raise UsageError(f"nccl is '{parts}'", remedy=f"--nccl {', '.join([*NCCL_PARTS, 'off'])}")
    _set(
        environment,
        given,
        NCCL_DEBUG="INFO",
        NCCL_DEBUG_SUBSYS=NCCL_PARTS[parts],
        NCCL_DEBUG_FILE=str(where / "nccl.%h.%p.log"),
    )
    environment.sources["nccl-log"] = f"NCCL_DEBUG_SUBSYS {given.get('NCCL_DEBUG_SUBSYS', NCCL_PARTS[parts])}"


def _flight(environment: CaptureEnvironment, where: Path, given: Mapping[str, str]) -> None:
    _set(
        environment,
        given,
        TORCH_FR_BUFFER_SIZE=str(RECORDS),
        TORCH_NCCL_TRACE_BUFFER_SIZE=str(RECORDS),
        TORCH_NCCL_DUMP_ON_TIMEOUT="1",
        TORCH_NCCL_DEBUG_INFO_TEMP_FILE=str(where / "fr_rank_"),
    )
    environment.sources["flight-recorder"] = f"the last {given.get('TORCH_FR_BUFFER_SIZE', RECORDS)} calls of each rank"


def _plugin(environment: CaptureEnvironment, where: Path, named: Path | None, given: Mapping[str, str]) -> None:
    """Use the NCCL profiler plug-in where it was built: named, or in this folder."""
    if "NCCL_PROFILER_PLUGIN" in given:
        environment.kept.append("NCCL_PROFILER_PLUGIN")
        return
    path = named or Path(FILE_NAME)
    if not path.is_file():
        if named is not None:
            raise UsageError(f"no plug-in at {named}", remedy=f"ringwright plugin build -o {named}")
        environment.sources["nccl-profiler"] = "off: the plug-in is not built (ringwright plugin build)"
        return
    environment.variables |= plugin_environment(path, str(where / "nccl-profile-%h-%p.rwprof"))
    environment.sources["nccl-profiler"] = str(path.absolute())
