"""What a recording says of what ran: the release of NCCL, the MPI library, and the command of the job."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ringwright.costs.nccl.constants import constants, release_numbers
from ringwright.ground.errors import UsageError
from ringwright.ground.scrub import scrub
from ringwright.jobs.pricing.costs import LIBRARY

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

COMMAND = "COMMAND"  # stands for the job's own where that is not known
MPI_LIBRARIES = {"open mpi": "open-mpi", "mpich": "mpich2"}  # how a library begins to tell its release -> its slug


def asked_release(text: str) -> str:
    """Return a release of NCCL that was typed, empty for none; UsageError for one whose choices are not known."""
    if text:
        constants(text)
    return text


def nccl_release(trace: Trace | None) -> str:
    """Return the newest release of NCCL that a recording names and whose choices are known; empty for none."""
    known = []
    for said in _releases(trace):
        with suppress(UsageError):
            constants(said)
            known.append((release_numbers(said), said.removeprefix("v").partition("+")[0].partition("-")[0]))
    return max(known, default=((), ""))[1]


def mpi_library(trace: Trace | None) -> str:
    """Return the slug of the MPI library that a recording names; empty for none."""
    told = [said.strip().lower() for said in _releases(trace)]
    return next((slug for begin, slug in MPI_LIBRARIES.items() if any(each.startswith(begin) for each in told)), "")


def library_of(trace: Trace | None) -> str:
    """Return who did the operations of a recording, as a system is spelled; empty where nothing says."""
    release = nccl_release(trace)
    return mpi_library(trace) or (f"{LIBRARY}:release={release}" if release else "")


def job_command(trace: Trace | None) -> str:
    """Return the command line that was recorded, without its secrets; COMMAND where none was."""
    if trace is None:
        return COMMAND
    said = [each["value"] for each in trace.table("claims").to_dicts() if each["field"] == "run command"]
    return scrub(str(said[0])) if said else COMMAND


def _releases(trace: Trace | None) -> list[str]:
    return [] if trace is None else [str(each) for each in trace.meta.get("nccl_versions") or []]
