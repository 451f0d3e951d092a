"""Folders for the time of a question, in the system's place for such; they go with their owner, however it ends.

Each is locked by its owner for as long as it lives. What a killed process left, nobody's lock holds: the next one removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

YOUNG_S = 5.0  # between making a folder and locking it
PREFIX = "ringwright-read-"
ROOM = "free some space there, or name a larger place: export TMPDIR=DIR"


class Scratch:
    """A folder of one process; ``close`` removes it."""

    def __init__(self, prefix: str, where: Path | None = None) -> None:
        folder = where or Path(tempfile.gettempdir())
        remove_left(prefix, folder)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._owner = os.getpid()
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the folder; a forked child leaves its parent's alone."""
        if self._lock >= 0 and os.getpid() == self._owner:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
        self._lock = -1


class TemporaryFolder:
    """Hold this to keep ``path``; the folder is removed when the holder is gone or the interpreter ends.

    What a killed interpreter left is removed by the next holder.
    """

    def __init__(self) -> None:
        folder = Scratch(PREFIX)
        self.path = folder.path
        self.remove = weakref.finalize(self, folder.close)


def remove_left(prefix: str, where: Path) -> None:
    """Remove folders of ours whose owner is dead: nobody holds a lock on them, and they are not just being made."""
    for folder in where.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if about.st_uid != os.geteuid() or time.time() - about.st_ctime < YOUNG_S:
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
