"""The jobs and runs of a server, and what may be done with them: open, follow, ask, cancel, forget."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ringwright.analysis.timeline.event_levels import EventLevels
from ringwright.formats.sources.many_jobs import file_stamp
from ringwright.ground.errors import InputError, UsageError
from ringwright.reports.serve import job_opening, questions
from ringwright.reports.serve.fleet import ServedFleet
from ringwright.reports.serve.runs import Commands
from ringwright.reports.serve.workspace import (
    AskedRun,
    OpenedJob,
    Workspace,
    job_id,
    job_name,
    new_id,
    safe_name,
    sent_name,
)

PAGE, RESULT, OUT, ERRORS = "page.html", "trace", "out.txt", "err.txt"
MOST_RUNS = 500  # that are kept; the oldest that have ended go first
UNFINISHED = ".part"  # of a file that is being sent
GLANCE_S = 0.5  # between two looks at what running commands have printed
LOOK_S = 2.0  # at the files of jobs that are followed
REST = 4.0  # a growing job is read anew at most a fifth of the time
MOST_OPENED = 32  # of many jobs, besides those that are followed or were asked about; the oldest go first
FLEET = "fleet"


class ServedJobs:
    """Everything behind the page.

    Parameters
    ----------
    workspace
        What is kept.
    roots
        Folders and files that may be opened; what a browser sent may be too.
    """

    def __init__(self, workspace: Workspace, roots: Sequence[Path]) -> None:
        self.workspace = workspace
        self.fleet: ServedFleet | None = None  # those of the folders that hold many jobs
        self.roots = [root.resolve() for root in roots]
        self.version = 0
        self.ended = False
        self._news = asyncio.Condition()
        self._notices: set[asyncio.Task[None]] = set()
        self.commands = Commands(workspace, self.changed)

    def changed(self) -> None:
        """Wake everybody who waits for news."""
        self.version += 1
        task = asyncio.get_running_loop().create_task(self._notify())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def news(self, since: int, patience_s: float) -> int:
        """Return the version once it is another one than ``since``, or after a while as it is."""
        async with self._news:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait_for(lambda: self.version != since or self.ended), patience_s)
        return self.version

    async def close(self) -> None:
        """End every command and everybody's waiting."""
        self.ended = True
        self.changed()
        await self.commands.close()

    # ---- jobs

    def allowed(self, path: str) -> Path:
        """Return a path that may be opened, as it really is; UsageError for any other."""
        real = Path(path).resolve()
        if not any(real == root or real.is_relative_to(root) for root in self.roots):
            raise UsageError(
                f"{path[:200]} is not below what this server was given",
                remedy="begin it with that folder: ringwright serve FOLDER, or send the files",
            )
        if not real.exists():
            raise UsageError(f"{path[:200]} is not there", remedy="choose one that is listed")
        return real

    def browse(self, path: str) -> list[Mapping[str, object]]:
        """Return what lies in a folder that may be opened; of the roots themselves where none is named."""
        if not path:
            entries = self.roots
        else:
            folder = self.allowed(path)
            entries = sorted(folder.iterdir()) if folder.is_dir() else []
        listed: list[Mapping[str, object]] = []
        for entry in entries[:2000]:
            hidden = entry.name.startswith(".") and path
            if not hidden and any(entry.resolve().is_relative_to(root) for root in self.roots):
                size = entry.stat().st_size if entry.is_file() else None
                listed.append({"path": str(entry), "name": entry.name, "folder": entry.is_dir(), "size_bytes": size})
        return listed

    def open(self, path: str, *, uploaded: bool = False, called: str = "") -> OpenedJob:
        """Open a job, or return it where it is open and unchanged since it was read; ``called``: what it is shown as."""
        name = job_id(path)
        job = self.workspace.jobs.get(name)
        now = file_stamp(path)[0]
        if job is None:
            job = OpenedJob(name, called or job_name(path), path, time.time(), uploaded=uploaded)
            self.workspace.keep(job)
            self._close_oldest()
        if job.state == "done" and job.stamp == now:
            return job
        self._read(job, now)
        return job

    def _close_oldest(self) -> None:
        """Forget the oldest of many jobs that were looked at, beyond those that are kept."""
        asked = {job for run in self.workspace.runs.values() for job in run.jobs}
        spare = [
            job
            for job in self.workspace.jobs.values()
            if self.fleet is not None and self.fleet.holds(job.path) and job.id not in asked and not job.following
        ]
        for job in sorted(spare, key=lambda job: job.opened_unix_s)[:-MOST_OPENED]:
            if not self.commands.is_known(job.id):
                self.workspace.forget(job.id)

    async def looked_at(self) -> ServedFleet:
        """Return the many jobs, and have read what is new of them; InputError where no folder of many jobs is served."""
        if self.fleet is None:
            raise InputError("no folder of many jobs is served here", remedy="ringwright serve --fleet FOLDER")
        if not self.commands.is_known(FLEET) and self.fleet.is_due() and await asyncio.to_thread(self.fleet.is_changed):
            self._read_fleet(self.fleet)
        return self.fleet

    def _read_fleet(self, fleet: ServedFleet) -> None:
        def told(text: str) -> None:
            fleet.told = text or "jobs are looked for"
            self.changed()

        def ended(task: asyncio.Task[int]) -> None:
            failed = not task.cancelled() and (task.exception() is not None or task.result())
            fleet.told = f"not all were read: {self.errors_of(fleet.kept)}" if failed else ""
            if not self.ended:
                self.changed()

        if self.commands.is_known(FLEET):  # two looked at once
            return
        try:
            self.commands.begin(FLEET, fleet.command, fleet.kept, told).add_done_callback(ended)
        except UsageError:  # too many commands wait: the next look begins it
            fleet.seen = None

    def _read(self, job: OpenedJob, now: str) -> None:
        if self.commands.is_known(job.id):
            return
        job.state, job.stamp, job.told = "waiting", now, "waits for its turn"
        self.workspace.keep(job)
        folder = self.workspace.job_folder(job.id)

        def told(text: str) -> None:
            job.state, job.told = "running", text or job.told
            self.changed()

        task = self.commands.begin(
            job.id, ["ringwright.reports.serve.job_opening", str(folder), job.path], folder, told
        )
        task.add_done_callback(lambda task: self._was_read(job, task))
        self.changed()

    def _was_read(self, job: OpenedJob, task: asyncio.Task[int]) -> None:
        if self.ended or job.id not in self.workspace.jobs:
            return
        if self.commands.was_cancelled(job.id) or task.cancelled():
            job.state, job.told = "cancelled", "cancelled"
        elif task.exception() is not None or task.result():
            job.state, job.told = "failed", self.errors_of(self.workspace.job_folder(job.id)) or str(task.exception())
        else:
            job.state, job.told, job.shown = "done", "", job.stamp
        _levels.cache_clear()
        self.workspace.keep(job)
        self.changed()

    def errors_of(self, folder: Path) -> str:
        """Return what a command said last on stderr."""
        try:
            told = (folder / ERRORS).read_text(errors="replace")
        except OSError:
            return ""
        at = max(told.rfind("\nringwright: "), 0)
        return told[at:].strip()[-2000:].removeprefix("ringwright: ")

    def job(self, name: str) -> OpenedJob:
        """Return a job; UsageError where there is none of that id."""
        if name not in self.workspace.jobs:
            raise UsageError("that job is not open", remedy="open it again")
        return self.workspace.jobs[name]

    def report(self, name: str) -> Path:
        """Return the report of a job that was read."""
        return self._of_job(name, job_opening.REPORT)

    def summary(self, name: str) -> Path:
        """Return the summary of a job that was read."""
        return self._of_job(name, job_opening.SUMMARY)

    def _of_job(self, name: str, file: str) -> Path:
        path = self.workspace.job_folder(self.job(name).id) / file
        if not path.exists():
            raise UsageError("that job was not read yet", remedy="wait until it was, or read why it could not be")
        return path

    def levels(self, name: str) -> EventLevels:
        """Return the timeline of a job that was read."""
        return _levels(self._of_job(name, job_opening.LEVELS))

    def forget(self, name: str) -> None:
        """Remove what is kept of a job."""
        job = self.job(name)
        if self.commands.is_known(job.id):
            raise UsageError("that job is just being read", remedy="cancel that first")
        self.workspace.forget(job.id)
        self.changed()

    def follow(self, name: str, on: bool) -> OpenedJob:
        """Read a job anew whenever its files have grown, or no more."""
        job = self.job(name)
        job.following = on
        self.workspace.keep(job)
        self.changed()
        return job

    async def watch(self) -> None:
        """Look after the jobs that are followed and the answers that grow, as long as the server runs."""
        due_s = 0.0
        sizes: dict[str, int] = {}
        while not self.ended:
            grown = {run.id: self._size(run) for run in self.workspace.runs.values() if run.state == "running"}
            if grown != sizes:
                sizes = grown
                self.changed()
            begin_s = time.monotonic()
            if begin_s >= due_s:
                if self.fleet is not None and self.fleet.following:
                    await self.looked_at()
                for job in [job for job in self.workspace.jobs.values() if job.following]:
                    now, _ = await asyncio.to_thread(file_stamp, job.path)
                    if now != job.stamp and not self.commands.is_known(job.id):
                        self._read(job, now)
                due_s = time.monotonic() + max(LOOK_S, REST * (time.monotonic() - begin_s))
            await asyncio.sleep(GLANCE_S)

    def _size(self, run: AskedRun) -> int:
        """Return the bytes that a command has printed."""
        with contextlib.suppress(OSError):
            return (self.workspace.run_folder(run.id) / OUT).stat().st_size
        return 0

    # ---- uploads

    def upload(self) -> str:
        """Return the id of a new folder for what a browser sends."""
        name = new_id()
        self.workspace.upload_folder(name).mkdir(mode=0o700)
        return name

    def upload_file(self, upload: str, name: str) -> Path:
        """Return where a file of an upload is to be written; nothing stands there yet."""
        folder = self.workspace.upload_folder(upload)
        if not folder.is_dir():
            raise UsageError("that upload has ended", remedy="send the files again")
        target = folder / safe_name(name)
        if target.exists():
            raise UsageError(f"{name[:80]!r} was sent already", remedy="send the files again")
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return target

    def open_upload(self, upload: str) -> OpenedJob:
        """Open what was sent as one job."""
        folder = self.workspace.upload_folder(upload)
        if folder.is_dir() and any(path.suffix == UNFINISHED for path in folder.rglob("*")):
            raise UsageError("a file is still on its way", remedy="wait until all of it was sent")
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        if not files:
            raise UsageError("nothing was sent", remedy="choose files first")
        path = files[0] if len(files) == 1 else folder
        return self.open(str(path.resolve()), uploaded=True, called=sent_name(files))

    # ---- runs

    def ask(self, slug: str, jobs: Sequence[str], answers: Mapping[str, object]) -> AskedRun:
        """Ask a question; the answer that is there already where nothing has changed since it was asked."""
        question = questions.of(slug)
        about = [self.job(job) for job in jobs]
        for job in about:
            if question.ends:
                self._of_job(job.id, job_opening.TRACE)
        words = questions.command(question, [job.path for job in about], answers)
        now = " ".join(job.stamp for job in about)
        for run in self.workspace.runs.values():
            if run.command == words and run.stamp == now and run.state in ("done", "running", "waiting"):
                return run
        run = AskedRun(new_id(), slug, question.title, words, [job.id for job in about], time.time(), now)
        self._begin(run, question, about)
        return run

    def again(self, name: str) -> AskedRun:
        """Ask once more what was asked in a run."""
        old = self.run(name)
        question = questions.of(old.question)
        about = [self.job(job) for job in old.jobs]
        now = " ".join(job.stamp for job in about)
        run = AskedRun(new_id(), old.question, old.title, old.command, old.jobs, time.time(), now)
        self._begin(run, question, about)
        return run

    def _begin(self, run: AskedRun, question: questions.AskForm, about: Sequence[OpenedJob]) -> None:
        self.workspace.keep(run)
        folder = self.workspace.run_folder(run.id)
        words = ["ringwright", "-v", *self._of_traces(run.command, question, about)]
        if question.page:
            words += [question.page, PAGE]
        if question.trace:
            words += [question.trace, RESULT]

        def told(text: str) -> None:
            if run.state == "waiting":
                run.state, run.began_unix_s = "running", time.time()
                self.workspace.keep(run)
            run.told = text
            self.changed()

        try:
            task = self.commands.begin(run.id, words, folder, told)
        except UsageError:
            self.workspace.drop(run.id)
            raise
        task.add_done_callback(lambda task: self._ended(run, task))
        self._tidy()
        self.changed()

    def _of_traces(
        self, command: Sequence[str], question: questions.AskForm, about: Sequence[OpenedJob]
    ) -> Sequence[str]:
        """Return the command with the Traces that were kept in the recordings' stead: reading those again would take longest."""
        if not question.ends:
            return command
        words = list(command)
        for job in about:
            words[words.index(job.path, 1)] = str(self.workspace.job_folder(job.id) / job_opening.TRACE)
        return words

    def _ended(self, run: AskedRun, task: asyncio.Task[int]) -> None:
        if self.ended or run.id not in self.workspace.runs:
            return
        folder = self.workspace.run_folder(run.id)
        run.ended_unix_s = time.time()
        run.has_page, run.has_trace = (folder / PAGE).is_file(), (folder / RESULT).is_dir()
        if self.commands.was_cancelled(run.id) or task.cancelled():
            run.state, run.told = "cancelled", "cancelled"
        elif task.exception() is not None:
            run.state, run.told = "failed", str(task.exception())
        else:
            run.exit_code = task.result()
            # A gate that fails is an answer; what else goes wrong says so on stderr.
            run.state = "done" if run.exit_code in (0, 1) else "failed"
            run.told = "" if run.state == "done" else self.errors_of(folder)
        self.workspace.keep(run)
        self.changed()

    def _tidy(self) -> None:
        """Drop the oldest answers beyond those that are kept."""
        ended = [run for run in self.workspace.runs.values() if not self.commands.is_known(run.id)]
        for run in sorted(ended, key=lambda run: run.asked_unix_s)[: max(len(self.workspace.runs) - MOST_RUNS, 0)]:
            self.workspace.drop(run.id)

    def run(self, name: str) -> AskedRun:
        """Return a run; UsageError where there is none of that id."""
        if name not in self.workspace.runs:
            raise UsageError("that answer is gone", remedy="ask again")
        return self.workspace.runs[name]

    def of_run(self, name: str, file: str) -> Path:
        """Return a file of a run's answer; InputError where it has none."""
        path = self.workspace.run_folder(self.run(name).id) / file
        if not path.exists():
            raise InputError("that answer has no such part", remedy="wait until it is done")
        return path

    def open_result(self, name: str) -> OpenedJob:
        """Open the Trace that a run has saved as a job of its own."""
        run = self.run(name)
        if not run.has_trace:
            raise UsageError("that answer saved no trace", remedy="ask a what-if: it saves one")
        job = self.open(str(self.of_run(name, RESULT).resolve()))
        job.name = f"{run.title}: {' '.join(run.command[1:])}"[:120]
        self.workspace.keep(job)
        return job


def shown(run: AskedRun) -> str:
    """Return a run's command as it is typed."""
    return shlex.join(["ringwright", *run.command])


@lru_cache(maxsize=8)
def _levels(folder: Path) -> EventLevels:
    return EventLevels.open(folder)
