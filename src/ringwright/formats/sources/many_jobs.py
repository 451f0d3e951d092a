"""A folder of many jobs: which recordings lie below it, what each job is called, and what changes when a recording does.

A folder holds many jobs where two or more recordings below it say of themselves that they are whole: saved Traces, and folders of
``ringwright run`` with a manifest. Recordings that lie loose in it are parts of one job, as everywhere; so are folders of logs,
one a host, which nobody can tell from one a job. Who knows better says so (``every``): then each entry is a job.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ringwright.formats.sources.captures import is_ours, kinds_of
from ringwright.formats.sources.detect import is_recording
from ringwright.formats.sources.gate.addresses import worth_reading
from ringwright.formats.sources.gate.inputs import sources_in
from ringwright.ground.errors import RingwrightError
from ringwright.model.trace import META_FILE

MOST_DEEP = 4  # folders between the one named and a recording
MANIFEST = re.compile(r"run\..+\.\d+(-\d+)?\.json")
_SUFFIX = re.compile(r"\.(?:gz|zst|zstd|tar|tgz|zip|bz2|xz|log|txt|out|json|jsonl|trace|db|csv)$", re.IGNORECASE)
# A date with or without a time, seconds since 1970, a number with a zero before it, one of a scheduler, a counted try.
_STAMP = re.compile(
    r"(?:^|[-_.@# ]+)(?:(?:19|20)\d\d-?[01]\d-?[0-3]\d"
    r"(?:[T_. -]?[0-2]\d[-:h_]?[0-5]\d(?:[-:m_]?[0-5]\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|0\d+|\d{5,}(?:\.\d+)?|(?:run|job|try|attempt|restart|trial)[-_.#]?\d+)$| *#\d+$",
    re.IGNORECASE,
)


class RecordedJob(NamedTuple):
    """A recording: its path, the names ``within`` the folder served, its files' stamp and last change (s since 1970)."""

    path: str
    within: tuple[str, ...]
    stamp: str
    changed_unix_s: float


def is_many_jobs(folder: Path) -> bool:
    """Whether a folder holds several recordings that are whole, and is none itself."""
    if not folder.is_dir() or _is_whole(folder) or any(_is_loose_recording(each) for each in _entries(folder)):
        return False
    jobs = _jobs(folder, folder, 0, every=False)
    return sum(1 for each, is_whole in jobs if is_whole) > 1


def recorded_jobs(folder: Path, *, every: bool) -> tuple[list[RecordedJob], list[str]]:
    """Return the jobs below a folder of many, and what lies beside them and is none; links are not followed.

    ``every``: an entry is a job too, where no whole recordings lie below it.
    """
    jobs, beside = [], []
    for path, is_whole in _jobs(folder, folder, 0, every=every):
        within = path.relative_to(folder).parts
        shown = "/".join(within).encode(errors="replace").decode()
        if (is_whole or every) and shown == "/".join(within):
            jobs.append(RecordedJob(str(path), within, *file_stamp(path)))
        else:  # a name that is no text can be neither shown nor asked for
            beside.append(shown)
    return jobs, beside


def _jobs(folder: Path, top: Path, deep: int, *, every: bool) -> Iterator[tuple[Path, bool]]:
    """Yield what lies in a folder, and whether it is a whole recording: in the stead of what holds some, those."""
    for each in _entries(folder):
        if _is_whole(each):
            yield each, True
        elif each.is_dir() and deep < MOST_DEEP:
            below = list(_jobs(each, top, deep + 1, every=False))
            yield from below if any(is_whole for _, is_whole in below) else [(each, False)]
        else:
            yield each, False


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as listed:
            names = sorted(each.name for each in listed if not each.is_symlink())
    except OSError:
        return []
    return [folder / name for name in names if worth_reading(Path(name))]


def _is_whole(path: Path) -> bool:
    try:
        with os.scandir(path) as listed:
            names = [each.name for each in listed]
        return any(map(MANIFEST.fullmatch, names)) or (
            META_FILE in names and _says_ours(path, (path / META_FILE).stat().st_mtime_ns)
        )
    except OSError:
        return False


@lru_cache(maxsize=8192)
def _says_ours(folder: Path, _mtime_ns: int) -> bool:
    return is_ours(folder)


def _is_loose_recording(path: Path) -> bool:
    try:
        return path.is_file() and any(is_recording(kinds_of(each)[0]) for each in sources_in(path))
    except (OSError, RingwrightError):
        return False


def file_stamp(path: str | Path) -> tuple[str, float]:
    """Return what changes whenever a file, or one below a folder, does, and when the last of them changed, s since 1970."""
    digest, last_ns = hashlib.sha256(), 0
    waiting = [os.fspath(path)]
    while waiting:
        each = waiting.pop()
        try:
            with os.scandir(each) as listed:
                inside = sorted(listed, key=lambda entry: entry.name)
            waiting += [entry.path for entry in inside if entry.is_dir(follow_symlinks=False)]
            files = [(entry.path, entry.stat()) for entry in inside if entry.is_file()]
        except NotADirectoryError:
            files = [(each, Path(each).stat())]
        except OSError:
            continue
        for name, about in files:
            digest.update(os.fsencode(name) + f"\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
            last_ns = max(last_ns, about.st_mtime_ns)
    return digest.hexdigest()[:16], last_ns / 1e9


def job_title(told: str, within: Sequence[str]) -> str:
    """Return what a job is called: its own name, else that of its folder, without time stamps and numbers of runs.

    A name of which nothing is left, as of a folder that is a date, stands for the folder above it.
    """
    for text in (told, *reversed(within)):
        name = text
        while (shorter := _STAMP.sub("", _SUFFIX.sub("", name))) != name:
            name = shorter
        if any(letter.isalpha() for letter in name):
            return name
    return "/".join(within)
