"""Record a job: claim the folder, start the command with every source switched on, say how it ended and what was recorded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringwright.analysis.document import Summary
from ringwright.capture.folder import Manifest, claim, job_name
from ringwright.capture.launch import JobExit, launch
from ringwright.capture.local_folder import collect, local_folder
from ringwright.capture.mpi.launcher import is_launcher
from ringwright.capture.settings import CaptureEnvironment, Options, settings, through_mpi
from ringwright.ground import drafts, scrub
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.ground.notebook import card, line
from ringwright.ground.version import VERSION

SCHEMA = "ringwright.run/1"


@dataclass(frozen=True)
class Recording:
    """How a recording went. ``summary`` is that of the folder (``ringwright.summary/1``), None where nothing was recorded."""

    folder: Path
    command: tuple[str, ...]
    ended: JobExit
    sources: dict[str, str]
    kept: tuple[str, ...]
    notes: tuple[str, ...]
    summary: Summary | None

    def __repr__(self) -> str:
        what = "no summary" if self.summary is None else f"{len(self.summary['operations'])} operations"
        ran, code = " ".join(self.command)[:60], self.ended.code
        return line(f"Recording({ran}: exit code {code} after {self.ended.took_s:.3g} s, {what}, in {self.folder})")

    def _repr_html_(self) -> str:
        sources = "; ".join(f"{name}: {said}" for name, said in self.sources.items())
        facts = {
            "command": " ".join(self.command),
            "exit code": str(self.ended.code),
            "took": f"{self.ended.took_s:.3g} s",
            "folder": str(self.folder),
            "sources": sources,
            "notes": "; ".join(self.notes),
        }
        return card("Recording", facts)

    def document(self) -> dict[str, Any]:
        """Return the object of schema ``ringwright.run/1``."""
        return {
            "schema": SCHEMA,
            "out": str(self.folder),
            "command": list(self.command),
            "exit_code": self.ended.code,
            "signal": self.ended.signal,
            "is_late": self.ended.is_late,
            "took_s": round(self.ended.took_s, 3),
            "sources": self.sources,
            "kept": list(self.kept),
            "notes": list(self.notes),
            "summary": self.summary,
        }


def record(
    command: Sequence[str],
    folder: Path,
    options: Options,
    *,
    job: str = "",
    timeout_s: float | None = None,
    stall_s: float | None = None,
    force: bool = False,
    summarised: bool = True,
    local: Path | None = None,
    tell: Callable[[str], None] = print,
) -> Recording:
    """Run a command and record it into ``folder``. ``tell`` is given words for the user while the job runs.

    ``local``: a folder of this node, below which is written while the job runs. The recording is complete up to whatever ended
    the job. Raises UsageError before the job is started, never after.
    """
    name = job_name(job, os.environ)
    if local is not None and command and is_launcher(command[0]):
        what = f"the ranks that {command[0]} starts on other nodes do not have {local}"
        raise UsageError(what, remedy=f"{command[0]} ... ringwright run --local {local} -o DIR -- PROGRAM")
    settings(folder, options, os.environ)  # raises before anything is claimed
    claim(folder, name, force=force)
    with drafts.alone(folder, with_others=bool(name)):
        work = folder if local is None else local_folder(local, folder, name, os.environ)
        chosen = settings(work, options, os.environ)
        if options.mpi and command and is_launcher(command[0]):
            command = through_mpi(command, chosen, work, os.environ)
        return _recorded(command, folder, work, chosen, name, timeout_s, stall_s, summarised=summarised, tell=tell)


def _recorded(
    command: Sequence[str],
    folder: Path,
    work: Path,
    chosen: CaptureEnvironment,
    name: str,
    timeout_s: float | None,
    stall_s: float | None,
    *,
    summarised: bool,
    tell: Callable[[str], None],
) -> Recording:
    """Start the command and stay until it has ended; the folder is claimed."""
    shown = scrub.words(command)
    facts = {"command": shown, "job": name, "ringwright_version": VERSION, "sources": chosen.sources}
    manifest = Manifest(work, facts | {"kept": chosen.kept, "started_ns": time.time_ns()})
    manifest.write()

    def stalled(seconds: float) -> None:
        tell(stall_words(work, seconds))

    try:
        ended = launch(command, chosen.variables, timeout_s=timeout_s, stall_s=stall_s, folder=work, stalled=stalled)
    except RingwrightError:
        manifest.write(ended_ns=time.time_ns(), exit_code=127, why="the command could not be started")
        _collected(work, folder)
        raise
    told = manifest.write(ended_ns=time.time_ns(), exit_code=ended.code, signal=ended.signal, is_late=ended.is_late)
    notes = [] if told else [f"{work}: the end of the job could not be noted: the disk may be full"]
    notes += _collected(work, folder)
    summary = None
    if summarised:
        summary, why = _summary(folder)
        notes += why
    return Recording(folder, tuple(shown), ended, chosen.sources, tuple(chosen.kept), tuple(notes), summary)


def _collected(work: Path, folder: Path) -> list[str]:
    return [] if work == folder else collect(work, folder)


def stall_words(folder: Path, seconds: float) -> str:
    """Ask the ranks for their Flight Recorder dumps, and return who waits for whom as far as the recording tells."""
    with suppress(OSError):
        (folder / "dump-request").touch()
    head = f"nothing was recorded for {seconds:.0f} s"
    summary, _ = _summary(folder)
    verdict = summary["verdict"] if summary else None
    if not verdict:
        return f"{head}: the job computes, or stands; look with: ringwright summary {folder}"
    who = f"ranks {', '.join(map(str, verdict['ranks']))}" if verdict["ranks"] else "no rank is named"
    return f"{head}: {verdict['kind']}, {who}: {verdict['evidence'][0] if verdict['evidence'] else ''}"


def _summary(folder: Path) -> tuple[Summary | None, list[str]]:
    """Return the summary of what was recorded, and why there is none; nothing here may cost the job its exit code."""
    from ringwright.analysis.summary import summarise
    from ringwright.formats.sources import read

    try:
        if not any(_is_recording(path) for path in folder.iterdir()):
            return None, [_nothing(folder)]
        return summarise(read(str(folder))), []
    except RingwrightError as error:
        return None, [f"no summary: {error.what}"]
    except Exception as error:  # noqa: BLE001 - the recording is there, and the job's exit code has to be passed on
        return None, [f"no summary: a bug of ours: {type(error).__name__}: {error}; ringwright summary {folder}"]


def _is_recording(path: Path) -> bool:
    return not path.name.startswith(("run.", ".", "not-recorded", "dump-request"))


def _nothing(folder: Path) -> str:
    reasons = [path.read_text(errors="replace").strip() for path in sorted(folder.glob("not-recorded.*.txt"))[:3]]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"nothing was recorded{why}: no process made a torch.distributed group, called MPI, or used NCCL; "
        "Python started with -I, -E or -S, or in a container without this environment, is not seen"
    )
