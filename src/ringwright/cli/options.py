"""Options that several verbs have: their one spelling, and the groups under which ``--help`` shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

QUESTION = Group("Question", sort_key=1)
JOB = Group("Job", sort_key=2)
POLICY = Group("Policy", sort_key=3)
MACHINE = Group("Machine", sort_key=4)
FAULTS = Group("Faults", sort_key=5)
SIZES = Group("Sizes", sort_key=6)
ENGINE = Group("Engine", sort_key=7)
RECORDING = Group("What is recorded", sort_key=8)
LIMITS = Group("Limits", sort_key=9)
OUTPUT = Group("Output", sort_key=10)

IN_LIMITS = Parameter(group=LIMITS)

Target = Annotated[Path | None, Parameter(name=["--output", "-o"], group=OUTPUT)]
TargetOrAddress = Annotated[str | None, Parameter(name=["--output", "-o"], group=OUTPUT)]
Folder = Annotated[Path | None, Parameter(name=["--output", "-o", "--out"], group=OUTPUT)]  # --out: as it was called
NeededTarget = Annotated[Path, Parameter(name=["--output", "-o"], group=OUTPUT)]
NeededFolder = Annotated[Path, Parameter(name=["--output", "-o", "--out"], group=OUTPUT)]
Gap = Annotated[
    str | None, Parameter(group=OUTPUT, help="Longest pause within a burst of a NIC: 50us (usual), 1ms ...")
]
Bursts = Annotated[
    bool, Parameter(group=OUTPUT, help="Show bursts too: sizes, gaps, duty, incast; --json always holds them.")
]
LinkModel = Annotated[
    str,
    Parameter(
        name=["--link-model", "--alpha"],
        group=ENGINE,
        help="Whether a link is free during its latency (pipelined) or busy (blocking).",
    ),
]
Executor = Annotated[
    str | None,
    Parameter(
        group=LIMITS,
        help="Who works: local:N (default: all cores), dask://HOST:8786, ray, slurm:partition=P, mpi (list executors).",
    ),
]
Force = Annotated[bool, Parameter(group=OUTPUT)]
Json = Annotated[bool, Parameter(group=OUTPUT)]
Sample = Annotated[
    bool, Parameter(group=QUESTION, help="Read the sample job that ships with ringwright instead of files.")
]


def gap_seconds(gap: str | None) -> float | None:
    """Return the seconds of ``--gap``, None where it is left out; raise UsageError for what is no time."""
    from ringwright.ground.units import parse_time

    return None if gap is None else parse_time(gap)
