"""A sweep as a script for Slurm: what ``sbatch`` takes, and the same command on the ranks or job arrays of a cluster."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringwright.executors.kinds import known, parsed, whole_number
from ringwright.ground.errors import UsageError

KIND = "sbatch"
SPELLING = "sbatch:partition=P,nodes=4,time=30,account=A"
EXECUTORS = ("mpi", "slurm")  # that a cluster has
_SETTINGS = ("partition", "nodes", "tasks", "cpus", "time", "account", "qos", "mem", "mpi")
_VALUE = re.compile(r"[A-Za-z0-9][\w.,:@+-]*", re.ASCII)


def batch_settings(text: str) -> dict[str, str]:
    """Return the settings of ``sbatch:partition=P,nodes=4``; UsageError for another kind, or one that sbatch would misread."""
    kind, _, rest = text.partition(":")
    pairs = [each.partition("=") for each in rest.split(",") if each]
    if kind != KIND or not all(equals for _, equals, _ in pairs):
        raise UsageError(f"'{text}' is no form of a sweep", remedy=f"--to {SPELLING}")
    settings = {name: value for name, _, value in pairs}
    known(KIND, settings, *_SETTINGS)
    if wrong := next((name for name, value in settings.items() if not _VALUE.fullmatch(value)), None):
        raise UsageError(f"{wrong}={settings[wrong]!r} is nothing that sbatch takes", remedy=f"--to {SPELLING}")
    return settings


def batch_script(settings: Mapping[str, str], arguments: Sequence[str], executor: str) -> str:
    """Return the script that sweeps with ``arguments`` by ``executor``; UsageError for one that no cluster has.

    By ``mpi`` the tasks of the job are its ranks; by ``slurm:...`` one task submits job arrays.
    """
    kind = parsed(executor).kind
    if kind not in EXECUTORS:
        raise UsageError(f"a job of Slurm does not work by '{executor}'", remedy="--executor mpi, or slurm:partition=P")
    nodes, minutes = (whole_number(settings, name, usual) for name, usual in (("nodes", 1), ("time", 60)))
    tasks = whole_number(settings, "tasks", 4) if kind == "mpi" else 1
    if kind == "mpi" and nodes * tasks < 2:
        raise UsageError("one rank asks and the others work: it takes two", remedy=f"--to {KIND}:tasks=4")
    if kind != "mpi" and nodes > 1:
        raise UsageError(
            "the script's own job submits arrays: one node is enough", remedy=f"--executor {executor},nodes={nodes}"
        )
    options = {"job-name": "ringwright-sweep", "nodes": nodes, "ntasks-per-node": tasks, "time": minutes}
    options |= {name: settings[name] for name in ("partition", "account", "qos", "mem") if name in settings}
    options["cpus-per-task"] = whole_number(settings, "cpus", 1)
    start = ["srun", *([f"--mpi={settings['mpi']}"] if "mpi" in settings else [])] if kind == "mpi" else []
    words = [*start, sys.executable, "-m", "ringwright", "sweep", *arguments, "--executor", executor]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{name}={value}" for name, value in options.items()),
        "# A sweep that was cut short goes on where it was when the same script is submitted again.",
        "set -euo pipefail",
        "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1",
        "exec " + " ".join(map(quoted, words)),
    ]
    return "\n".join(lines) + "\n"


def quoted(word: str | Path) -> str:
    """Return a word as bash reads it, in ASCII whatever it holds."""
    text = str(word)
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    letters = (
        chr(byte) if 32 <= byte < 127 and chr(byte) not in "\\'" else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "surrogateescape")
    )
    return f"$'{''.join(letters)}'"
