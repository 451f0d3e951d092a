"""Which library made a recording's calls: what is advised, and whose figures it is beside, belong to that library's world."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NCCL, RCCL, GLOO, MPI, UCC, XLA, VERBS, UNKNOWN = "nccl", "rccl", "gloo", "mpi", "ucc", "xla", "verbs", ""
OF_NCCL = (NCCL, RCCL)  # which share settings and nccl-tests
# Sources that only one library writes, where the recording itself names none.
_OF_SOURCE = {
    "nccl-log": NCCL,
    "bench": NCCL,
    "perf-table": NCCL,
    "inspector": NCCL,
    "nccl-profiler": NCCL,
    "nccl-profiler-example": NCCL,
    "prometheus": NCCL,
    "rccl-recorder": RCCL,
    "xplane": XLA,
    "osu": MPI,
    "imb": MPI,
    "ucc": UCC,
    "perftest": VERBS,
}
_MPI = re.compile(r"\bmpi|mpich|mvapich|open ?mpi", re.IGNORECASE)


def made_by(meta: Mapping[str, Any]) -> str:
    """Return the library of a Trace's calls by its meta data, or by its summary; empty where neither says it.

    A library by its name comes first, then the releases that were read, then a source that one library alone writes.
    """
    named = str(meta.get("library") or "").lower()
    for library in (RCCL, NCCL, GLOO, UCC):
        if library in named:
            return library
    releases = " ".join(map(str, meta.get("nccl_versions") or ()))
    if _MPI.search(named) or _MPI.search(releases):
        return MPI
    sources = str(meta.get("source", "")).split("+")
    return next((_OF_SOURCE[source] for source in sources if source in _OF_SOURCE), UNKNOWN)


def is_nccl(meta: Mapping[str, Any]) -> bool:
    """Say whether NCCL or RCCL made the calls, so that their settings and benchmarks apply."""
    return made_by(meta) in OF_NCCL


def release(meta: Mapping[str, Any]) -> str:
    """Return library and release as read; a release that names its library stands for itself."""
    library, releases = made_by(meta), ", ".join(map(str, meta.get("nccl_versions") or ()))
    name = library.upper() or str(meta.get("library") or "").upper()
    if not name:
        return releases or "library unknown"
    if library == MPI and _MPI.search(releases):
        return releases
    return f"{name} {releases or 'version unknown'}"
