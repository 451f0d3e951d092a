"""What a server keeps: a folder with the jobs that were opened, what was asked about them and every answer.

There is no database: each job and each run is a folder with one JSON record, so that a server that was killed finds all of it
again. Recordings stay where they are; only what a browser sent lies in here too.

    jobs/ID/job.json      its path; report.html, summary.json, trace/ and timeline/ once it was read
    runs/ID/run.json      question, command, state; out.txt, err.txt, and page.html or trace/ where the verb writes them
    uploads/ID/           files that a browser sent
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from ringwright.ground import drafts
from ringwright.ground.errors import UsageError

State = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]
UNFINISHED = ("waiting", "running")
NAME = re.compile(r"[0-9a-f]{12}")
LONGEST = 120
MOST_PARTS = 8


class OpenedJob(msgspec.Struct):
    """A recording, a file or a folder. ``state`` is that of reading it; ``stamp`` changes whenever its files do.

    ``shown`` is the stamp of what was read last, empty before: it is shown while the files are read anew.
    """

    id: str
    name: str
    path: str
    opened_unix_s: float
    state: State = "waiting"
    stamp: str = ""
    shown: str = ""
    told: str = ""
    following: bool = False
    uploaded: bool = False


class AskedRun(msgspec.Struct):
    """A command that was asked for. ``told`` is its last sign of life, ``exit_code`` None as long as it has none."""

    id: str
    question: str
    title: str
    command: list[str]
    jobs: list[str]
    asked_unix_s: float
    stamp: str = ""
    state: State = "waiting"
    began_unix_s: float | None = None
    ended_unix_s: float | None = None
    exit_code: int | None = None
    told: str = ""
    has_page: bool = False
    has_trace: bool = False


Record = TypeVar("Record", OpenedJob, AskedRun)


class Workspace:
    """The folder; ``jobs`` and ``runs`` are what it holds, by id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("jobs", "runs", "uploads"):
            with drafts.writing(folder):
                (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self.jobs = {job.id: job for job in self._records("jobs", "job.json", OpenedJob)}
        self.runs = {run.id: run for run in self._records("runs", "run.json", AskedRun)}
        self.interrupt()

    def interrupt(self) -> None:
        """Say of what had not ended that it will not."""
        records: list[OpenedJob | AskedRun] = [*self.jobs.values(), *self.runs.values()]
        for record in records:
            if record.state in UNFINISHED:
                record.state, record.told = "interrupted", "the server ended before this did"
                self.keep(record)

    def _records(self, kind: str, name: str, what: type[Record]) -> list[Record]:
        """Return the records of a kind; a folder without a whole one is no job and no run."""
        records = []
        for folder in sorted((self.folder / kind).iterdir()):
            try:
                record = msgspec.json.decode((folder / name).read_bytes(), type=what)
            except (OSError, msgspec.DecodeError):
                continue
            if record.id == folder.name:
                records.append(record)
        return records

    def job_folder(self, job: str) -> Path:
        """Return the folder of a job; UsageError for what is no id."""
        return self._of("jobs", job)

    def run_folder(self, run: str) -> Path:
        """Return the folder of a run; UsageError for what is no id."""
        return self._of("runs", run)

    def upload_folder(self, upload: str) -> Path:
        """Return the folder of what a browser sends; UsageError for what is no id."""
        return self._of("uploads", upload)

    def _of(self, kind: str, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise UsageError(f"{name[:40]!r} names nothing here", remedy="load the page again")
        return self.folder / kind / name

    def keep(self, record: OpenedJob | AskedRun) -> None:
        """Write a record; it is whole on disk whenever the process may end."""
        job = isinstance(record, OpenedJob)
        folder = self.job_folder(record.id) if job else self.run_folder(record.id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        drafts.write(folder / ("job.json" if job else "run.json"), msgspec.json.encode(record))
        if isinstance(record, OpenedJob):
            self.jobs[record.id] = record
        else:
            self.runs[record.id] = record

    def forget(self, job: str) -> None:
        """Remove what was kept of a job, its runs too; the recording itself stays unless a browser sent it."""
        record = self.jobs.pop(job)
        shutil.rmtree(self.job_folder(job), ignore_errors=True)
        for run in [run for run in self.runs.values() if job in run.jobs]:
            self.drop(run.id)
        uploads = self.folder.resolve() / "uploads"
        if record.uploaded and Path(record.path).is_relative_to(uploads):
            shutil.rmtree(uploads / Path(record.path).relative_to(uploads).parts[0], ignore_errors=True)

    def drop(self, run: str) -> None:
        """Remove a run and its answer."""
        self.runs.pop(run)
        shutil.rmtree(self.run_folder(run), ignore_errors=True)


def new_id() -> str:
    """Return an id that nobody guesses."""
    return secrets.token_hex(6)


def job_id(path: str) -> str:
    """Return the id of a job: the same path is the same job, after a restart too."""
    return hashlib.sha256(os.fsencode(Path(path).resolve())).hexdigest()[:12]


def job_name(path: str) -> str:
    """Return what a job is called: its folder, or its file and the folder that holds it."""
    real = Path(path).resolve()
    return (real.name if real.is_dir() else "/".join(real.parts[-2:]))[-LONGEST:]


def sent_name(files: Sequence[Path]) -> str:
    """Return what a job is called whose files a browser sent: by the user's own names, not by the folder that took them."""
    first, more = files[0].name, len(files) - 1
    return f"{first[-LONGEST:]}" + (f" and {more} more" if more else "")


def safe_name(name: str) -> Path:
    """Return a relative path made of what a browser calls a file; UsageError where nothing usable is left."""
    parts = [re.sub(r"[^\w.+=@,-]", "_", part)[-LONGEST:] for part in name.replace("\\", "/").split("/")]
    parts = [part for part in parts if part.strip(".")]
    if not parts or len(parts) > MOST_PARTS:
        raise UsageError(f"{name[:80]!r} is no name of a file", remedy="rename it, or send the folder above it")
    return Path(*parts)
