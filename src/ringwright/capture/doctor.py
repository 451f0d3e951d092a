"""Why is nothing recorded? What this machine, its settings and some recordings can show and cannot, each with its remedy."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ringwright.analysis import library_of_calls, remedies

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

SCHEMA = "ringwright.doctor/1"
OF_CPUS = (library_of_calls.GLOO, library_of_calls.MPI)  # libraries of jobs whose work is in no kernel
# What gives a recording times, by the library that made its calls; of any other one PyTorch's profiler.
TIMES = {
    library_of_calls.NCCL: 'ringwright plugin build && eval "$(ringwright plugin env)", or a profiler of PyTorch',
    library_of_calls.GLOO: "ringwright run -- COMMAND",
    library_of_calls.MPI: "ringwright run -- mpirun -n RANKS COMMAND",
    library_of_calls.XLA: "jax.profiler.trace('profile')",
}
PROFILER = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"


@dataclass(frozen=True)
class Check:
    """One check: ``state`` is good, missing or note."""

    about: str
    state: str
    found: str
    means: str
    remedy: str = ""


def examine(environment: Mapping[str, str] | None = None, trace: Trace | None = None) -> dict[str, Any]:
    """Return the object of schema ``ringwright.doctor/1``; without a Trace the machine and its settings alone."""
    given = os.environ if environment is None else environment
    checks = [*_settings(given), *_machine()] if trace is None else _recording(trace)
    return {"schema": SCHEMA, "checks": [asdict(check) for check in checks]}


# long: one check after another, each with its words and its remedy
def _settings(given: Mapping[str, str]) -> list[Check]:
    """Look at the variables that decide whether anything is written."""
    debug = given.get("NCCL_DEBUG", "").upper()
    parts = {part.strip().upper() for part in given.get("NCCL_DEBUG_SUBSYS", "").split(",") if part.strip()}
    checks = [
        _present(
            "NCCL log",
            debug in ("INFO", "TRACE"),
            f"NCCL_DEBUG={debug or 'unset'}",
            "one line per set-up step and call",
            "nothing is printed below INFO",
            "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,COLL",
        ),
        _present(
            "calls in the log",
            bool({"COLL", "ALL"} & parts),
            f"NCCL_DEBUG_SUBSYS={','.join(sorted(parts)) or 'unset'}",
            "every collective prints a line",
            "operations are not printed, only set-up",
            "export NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,COLL",
        ),
        _present(
            "one log per process",
            "%" in given.get("NCCL_DEBUG_FILE", ""),
            given.get("NCCL_DEBUG_FILE", "unset"),
            "lines of processes cannot cut into each other",
            "ranks write into one stream and cut each other's lines",
            "export NCCL_DEBUG_FILE=nccl.%h.%p.log",
        ),
        _present(
            "profiler plug-in",
            "NCCL_PROFILER_PLUGIN" in given,
            given.get("NCCL_PROFILER_PLUGIN", "unset"),
            "times of kernels and of the network, NCCL 2.23 and newer",
            "the log carries no times",
            'ringwright plugin build && eval "$(ringwright plugin env)"',
        ),
        _inspector(given),
        _present(
            "Flight Recorder",
            int(_number(given, "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")) > 0,
            f"TORCH_FR_BUFFER_SIZE={given.get('TORCH_FR_BUFFER_SIZE', 'unset')}",
            "a hang leaves a dump per rank",
            "a hang leaves nothing to read",
            f"ringwright run --flight -- COMMAND, or {remedies.FLIGHT_RECORDER}",
        ),
    ]
    if given.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        checks.append(
            Check(
                "overlap",
                "note",
                "CUDA_DEVICE_MAX_CONNECTIONS=1",
                "kernels of all streams start in the order of their launch",
                "unset it unless tensor parallelism with sequence parallelism needs that order",
            )
        )
    return checks


def _present(about: str, there: bool, shown: str, means: str, lack: str, remedy: str) -> Check:
    return Check(about, "good", shown, means) if there else Check(about, "missing", shown, lack, remedy)


def _number(given: Mapping[str, str], *names: str) -> float:
    """Return the first of some variables that is a number, else 0."""
    for name in names:
        value = given.get(name, "")
        if value.isdecimal():
            return float(value)
    return 0.0


def _inspector(given: Mapping[str, str]) -> Check:
    """Inspector needs two variables beside the plug-in: loaded without them it writes nothing."""
    names = ("NCCL_INSPECTOR_ENABLE", "NCCL_INSPECTOR_DUMP_DIR")
    there = [name for name in names if given.get(name)]
    if "inspector" in given.get("NCCL_PROFILER_PLUGIN", "") and len(there) < len(names):
        absent = ", ".join(name for name in names if name not in there)
        return Check(
            "Inspector",
            "missing",
            f"{absent} unset",
            "the plug-in is loaded and writes nothing",
            "export NCCL_INSPECTOR_ENABLE=1 NCCL_INSPECTOR_DUMP_DIR=inspector",
        )
    return Check(
        "Inspector", "note", "on" if there else "off", "messages below 8 KiB are not recorded unless asked for"
    )


def _machine() -> list[Check]:
    from ringwright import native
    from ringwright.ground import extras

    torch = importlib.util.find_spec("torch") is not None
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "")
    return [
        _present(
            "compiled loops",
            native.engine is not None,
            "built" if native.engine is not None else "absent",
            "large inputs are read at full speed",
            "answers are the same, large inputs take longer",
            extras.rebuild(),
        ),
        _present(
            "C compiler",
            bool(compiler),
            compiler or "none found",
            "the profiler plug-in can be built here",
            "the profiler plug-in cannot be built here",
            "apt-get install gcc",
        ),
        Check(
            "PyTorch",
            "good" if torch else "note",
            "installed" if torch else "absent",
            "its profiler and Flight Recorder can be used here" if torch else "not needed to read recordings",
        ),
    ]


# long: one check after another, each with its words and its remedy
def _recording(trace: Trace) -> list[Check]:
    """Say what a recording tells and what it cannot."""
    import polars as pl

    kinds, library = trace.meta.get("source", "") or "capture", library_of_calls.made_by(trace.meta)
    is_torch = library not in (library_of_calls.MPI, library_of_calls.XLA)
    events = (
        trace.scan("events")
        .select(
            calls=pl.col("kind").is_in(["collective", "p2p"]).sum(),
            timed=(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("duration_s").is_not_null()).sum(),
            sized=(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("size_bytes").is_not_null()).sum(),
            grouped=(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("communicator").is_not_null()).sum(),
            kernels=pl.col("kernel").is_not_null().sum(),
            compute=(pl.col("kind") == "compute").sum(),
            ranks=pl.col("rank").drop_nulls().n_unique(),
            unknown=(pl.col("kernel_class") == "unknown-communication").sum(),
            measured=(pl.col("kind") == "measurement").sum(),
            layered=pl.any_horizontal(pl.col("layer", "phase").is_not_null()).sum(),
        )
        .collect()
        .row(0, named=True)
    )
    checks = [Check("kind", "good", str(kinds), "what was recognised"), _calls(str(kinds), events)]
    if not events["calls"]:
        return [*checks, Check("measurements", "good", f"{events['measured']:,}", "rows of a benchmark")][
            : 2 + bool(events["measured"])
        ]
    checks += [
        _share(
            "times",
            events["timed"],
            events["calls"],
            "how long each call took, waiting for others included",
            "when and how long: a log or execution trace has no times",
            TIMES.get(library, f"ringwright run -- COMMAND, or {PROFILER}"),
        ),
        _share(
            "sizes",
            events["sized"],
            events["calls"],
            "bytes per call",
            "bytes: these calls carry no size",
            "record_shapes=True, or PyTorch 2.3 and newer, which writes sizes beside kernels" if is_torch else "",
        ),
        _share(
            "groups",
            events["grouped"],
            events["calls"],
            "who took part",
            "which group a call was in",
            "PyTorch 2.3 and newer writes the process group beside kernels" if is_torch else "",
        ),
        _overlap(events, library),
        _present(
            "other ranks",
            events["ranks"] > 1,
            f"{events['ranks']} ranks",
            "who arrived last",
            "who waited for whom: one rank alone cannot tell",
            "record every rank, one file each, and name their folder",
        ),
    ]
    if events["unknown"]:
        checks.append(
            Check(
                "unknown kernels",
                "note",
                f"{events['unknown']:,}",
                "they look like communication and are in no catalogue",
                "name them in a catalogue of your own: RINGWRIGHT_KERNELS=kernels.toml",
            )
        )
    return checks


def _overlap(events: dict[str, int], library: str) -> Check:
    """Say whether what ran beside communication was recorded; what jobs on CPUs compute no profiler tells."""
    on_cpus = library in OF_CPUS
    return _present(
        "overlap",
        events["compute"] > 0 and events["timed"] > 0,
        f"{events['compute']:,} compute kernels",
        "how much communication was hidden",
        "what ran beside communication: no compute kernel was recorded"
        + (", and work on CPUs is in none" if on_cpus else ""),
        "" if on_cpus else TIMES[library] if library == library_of_calls.XLA else PROFILER,
    )


def _calls(kinds: str, events: dict[str, int]) -> Check:
    """Say why no call may be there, for this kind of recording."""
    if events["calls"]:
        return Check("calls", "good", f"{events['calls']:,}", "collectives and messages were read")
    if events["measured"]:
        return Check("calls", "note", "none", "a benchmark's table holds measurements, not a job's calls")
    reasons = {
        "nccl-log": ("no COLL line: the subsystem was not asked for", "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL"),
        "kineto": ("no communication kernel or annotation", "profile with activities=[CPU, CUDA], and after warm-up"),
        "flight-recorder": ("the buffer is empty", "TORCH_FR_BUFFER_SIZE=2000"),
    }
    means, remedy = next(
        (value for key, value in reasons.items() if key in kinds), ("no call was found", "ringwright read PATH")
    )
    return Check("calls", "missing", "none", means, remedy)


def _share(about: str, there: int, of: int, means: str, lack: str, remedy: str) -> Check:
    share = f"{there:,} of {of:,} calls"
    return Check(about, "good", share, means) if there == of else Check(about, "missing", share, lack, remedy)
