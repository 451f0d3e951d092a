"""The next command of a finding: the text after ``$`` can be typed as it is, and it names the whole input."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringwright.analysis.library_of_calls import is_nccl

_SAMPLES = Path(__file__).resolve().parents[1] / "samples"
SIMULATED = "simulator"  # source of a trace that no run was read from
# What each rank writes down for the next time, where nobody can tell who began a hang.
FLIGHT_RECORDER = "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"
MOST_NAMED = 4  # files, beyond which their folder is named
PERF = {
    "all-reduce": "all_reduce_perf",
    "all-gather": "all_gather_perf",
    "reduce-scatter": "reduce_scatter_perf",
    "all-to-all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "gather": "gather_perf",
    "scatter": "scatter_perf",
    "send": "sendrecv_perf",
    "recv": "sendrecv_perf",
    "send-recv": "sendrecv_perf",
}
# Of OSU's programs those whose sizes are the whole.
OSU = {
    "all-reduce": "allreduce",
    "broadcast": "bcast",
    "reduce": "reduce",
    "reduce-scatter": "reduce_scatter",
    "send-recv": "bw",
}


def inputs(names: Sequence[str | None]) -> str:
    """Return the input as a user types it: a file, several files, or the folder or archive that holds them.

    Events of a damaged capture may have lost the name of theirs.
    """
    known = list(dict.fromkeys(_outside(name) for name in names if name))
    if known and all(Path(name).parent == _SAMPLES for name in known):
        return "--sample"
    parents = {os.path.dirname(name) for name in known}  # noqa: PTH120 - a path is to be typed as it came, "./" and all
    if len(known) > MOST_NAMED and len(parents) == 1 and "" not in parents:
        known = [*parents]
    return " ".join("-" if name == "<stdin>" else shlex.quote(name) for name in known) or "."


def _outside(name: str) -> str:
    """Return the file that a member of an archive lies in."""
    archive, mark, _ = name.partition("!")
    return archive if mark else name


def given(document: Mapping[str, Any]) -> list[str]:
    """Return the inputs of a trace (its meta data, or its summary) that can be typed: that of a simulation may be a fabric."""
    names = list(document.get("inputs", []))
    return [name for name in names if os.path.exists(name)] if document.get("source") == SIMULATED else names  # noqa: PTH110


def report(document: Mapping[str, Any]) -> str:
    """Return the command that shows everything of a trace's input as a page; empty where no input can be typed."""
    return _on_all("ringwright report {} -o job.html", document)


def perfetto(document: Mapping[str, Any]) -> str:
    """Return the command that makes a timeline of a trace's input; empty where no input can be typed."""
    return _on_all("ringwright convert {} --format perfetto -o job.json", document)


def _on_all(command: str, document: Mapping[str, Any]) -> str:
    names = given(document)
    return "" if document.get("inputs") and not names else command.format(inputs(names))


def pairs(meta: Mapping[str, Any]) -> str:
    """Return what measures one pair of ranks after the other in the world of the recording; empty where nothing is known."""
    return "sendrecv_perf -b 1M -e 64M -f 2 -w 20 -n 100" if is_nccl(meta) else ""


def perf(op: str, low_bytes: int, high_bytes: int, source: str = "") -> str:
    """Return the run over a range of sizes of the benchmark that was read; empty where it has no program for the operation."""
    if source == "osu":
        name = OSU.get(op)
        return f"osu_{name} -m {low_bytes}:{high_bytes} -i 1000 -f" if name else ""
    if source in ("imb", "ucc", "perftest"):
        return ""
    return f"{PERF[op]} -b {low_bytes} -e {high_bytes} -f 2 -w 20 -n 100" if op in PERF else ""
