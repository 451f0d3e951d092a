"""Where labs leave word of themselves while they live, and how the next one removes what a killed one left.

Each lab has a folder of its own below the user's runtime folder and holds a lock on it (``flock`` on the folder itself) for as
long as it lives. A folder without a lock is a dead lab's: its daemon is ended, the folder removed. Nothing else is touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ringwright.ground.errors import InfeasibleError

TRIES = 50


def runtime() -> Path:
    """Return the user's folder of running labs; it exists only while there are some."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and os.access(given, os.W_OK):
        return Path(given) / "ringwright-lab"
    return Path(tempfile.gettempdir()) / f"ringwright-lab-{os.geteuid()}"


@contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a folder's lock; give False where somebody else does and we do not wait, or where there is no folder."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(number)


class Claim:
    """A living lab's folder, locked until ``release``."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.folder, self._lock = _claimed()
        (self.folder / "about.json").write_text(json.dumps({"pid": os.getpid(), "began_s": time.time(), **about}))

    def release(self) -> None:
        """Remove the folder, and the user's with the last one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        with suppress(OSError):
            self.folder.parent.rmdir()


def _claimed() -> tuple[Path, int]:
    top = runtime()
    for _ in range(TRIES):  # the last lab of another process may remove the folder between two of our lines
        top.mkdir(mode=0o700, exist_ok=True)
        if top.lstat().st_uid != os.geteuid() or top.is_symlink():
            raise InfeasibleError(f"{top} belongs to somebody else", remedy="XDG_RUNTIME_DIR=... ringwright lab ...")
        with _locked(top) as mine:
            if mine and top.exists():
                with suppress(FileNotFoundError):
                    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=top))
                    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    fcntl.flock(number, fcntl.LOCK_EX)
                    return folder, number
    raise InfeasibleError(f"no folder can be made in {top}")


def found() -> list[dict[str, Any]]:
    """Return the labs of this user, alive or left: folder, pid, spec, ``is_alive``."""
    labs = []
    top = runtime()
    for folder in sorted(top.iterdir()) if top.is_dir() else []:
        with _locked(folder, wait=False) as free:
            about: dict[str, Any] = {}
            with suppress(OSError, ValueError):
                about = json.loads((folder / "about.json").read_text())
            labs.append({**about, "folder": str(folder), "is_alive": not free})
    return labs


def clean() -> list[str]:
    """Remove what killed labs of this user left; return their folders."""
    removed = []
    with _locked(runtime()) as mine:
        for lab in found() if mine else []:
            if not lab["is_alive"]:
                _end_daemons(lab["folder"])
                shutil.rmtree(lab["folder"], ignore_errors=True)
                removed.append(lab["folder"])
        if mine:
            with suppress(OSError):
                runtime().rmdir()
    return removed


def _end_daemons(folder: str) -> None:
    """End the processes that hold a dead lab's namespaces: those whose command line names its folder."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            if folder.encode() in words and any(word.endswith(b"/namespace_daemon.py") for word in words):
                os.kill(int(path.name), signal.SIGKILL)
