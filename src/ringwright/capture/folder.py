"""The folder of a recorded job: claimed once per job, told about by one manifest per launcher.

``run.<host>.<pid>.json`` (format ``run/1``) says what was started, with which sources, and how it ended. It is written before the
job starts and again after it, each time whole by renaming; a launcher that was killed leaves the first form, without an end.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ringwright.ground import drafts
from ringwright.ground.errors import UsageError

FORMAT = "run/1"
PRIVATE_FOLDER = 0o700  # of a folder that a recording makes: NCCL and PyTorch write into it as the user's mask says
# What a recording leaves, and nothing else: --force removes these.
PATTERNS = (
    "run.*.json",
    "calls.*.jsonl",
    "network.*.jsonl",
    "nccl.*.log",
    "fr_rank_*",
    "kineto_rank_*.json",
    "et_rank_*.json",
    "nccl-profile-*.rwprof",
    "not-recorded.*.txt",
    "dump-request",
    ".part.run.*.json",
    ".run.*.draft",
    ".probe.*",
)
_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID", "KUBEFLOW_JOB_NAME", "TORCHELASTIC_RUN_ID")


def job_name(given: str, environment: Mapping[str, str]) -> str:
    """Return what several launchers of one job have in common: ``given``, or the scheduler's name of the job and step."""
    if given:
        return given
    name = next((environment[variable] for variable in _JOB_VARIABLES if environment.get(variable)), "")
    step = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID") or ""
    return f"{name}.{step}" if name and step else name


def free_folder(parent: Path) -> Path:
    """Return the first of ringwright-run-1, -2, ... that does not exist."""
    number = 1
    while (parent / f"ringwright-run-{number}").exists():
        number += 1
    return parent / f"ringwright-run-{number}"


def claim(folder: Path, job: str, *, force: bool) -> None:
    """Make the folder, or take it: when it is empty, when a launcher of the same job has it, or by force from an older recording.

    Files that no recording wrote are never removed. Raises UsageError where the folder is taken, or cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", remedy="name another folder with --output")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        _take(folder, job, force=force)
        probe = folder / f".probe.{socket.gethostname()}.{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}", remedy="name another folder with --output"
        ) from error


def _take(folder: Path, job: str, *, force: bool) -> None:
    # What another launcher of this job is just writing is no reason to refuse: its manifest is there in a moment.
    others = [path for path in folder.iterdir() if not path.name.startswith((".probe.", ".part.", ".run."))]
    if not others:
        return
    if job and any(manifest.get("job") == job for manifest in manifests(folder)):
        return
    if not force:
        raise UsageError(
            f"{folder} is not empty",
            remedy="name another --output; --force to record over; --job NAME joins a job's other launchers",
        )
    with drafts.alone(folder):  # a recording that still runs is not removed
        for pattern in PATTERNS:
            for path in folder.glob(pattern):
                path.unlink()


def manifests(folder: Path) -> list[dict[str, Any]]:
    """Return the manifests in a folder that can be read."""
    documents = []
    for path in sorted(folder.glob("run.*.json")):
        with suppress(OSError, ValueError):
            document = json.loads(path.read_text())
            if isinstance(document, dict):
                documents.append(document)
    return documents


class Manifest:
    """This launcher's own manifest."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        host = socket.gethostname()
        self._path = unused(folder / f"run.{host}.{os.getpid()}.json")
        self._facts = {
            "ringwright": FORMAT,
            "host": host,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            **facts,
        }

    def write(self, **facts: Any) -> bool:
        """Write the manifest with more facts; return whether it could be written."""
        self._facts |= facts
        try:
            drafts.write(self._path, json.dumps(self._facts, indent=1) + "\n", mode=drafts.PRIVATE)
        except (OSError, UsageError):
            return False
        return True


def unused(wanted: Path) -> Path:
    """Return a path that is not there, this one or ``NAME-2``: a container that starts again has the same host and process id."""
    path, life = wanted, 2
    while path.exists():
        path, life = wanted.with_name(f"{wanted.stem}-{life}{wanted.suffix}"), life + 1
    return path
