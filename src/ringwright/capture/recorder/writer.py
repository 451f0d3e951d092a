"""One process's calls file: each line goes to the kernel at once and whole, so that nothing is lost with the process.

Format: ``docs/reference/calls-file.md``. A line that cannot be written (disk full, folder gone) is counted, and the count written
as soon as something can be.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

FORMAT = "calls/1"
_MOST_TEXT = 300
_MOST_LIVES = 1000


class Writer:
    """Appends JSON lines; never raises after it was made. A forked child inherits it shut: the file is its parent's."""

    def __init__(self, folder: str, source: str, library: str) -> None:
        host = socket.gethostname()
        self._fd = _opened(folder, "calls.%s.%d" % (host, os.getpid()))
        self._lost: dict[str, int] = {}  # since the beginning, per reason
        self._losses = self._told = 0
        self._is_torn = False
        self._lock = threading.RLock()  # a handler of signals may interrupt its holder, and make a call
        os.register_at_fork(after_in_child=self.close)
        head = {"ringwright": FORMAT, "source": source, "host": host, "pid": os.getpid(), "library": library}
        head.update(program=_program()[:_MOST_TEXT], rank=_number("RANK"), world=_number("WORLD_SIZE"))
        head.update(
            local_rank=_number("LOCAL_RANK"), life=_life(), wall_ns=time.time_ns(), clock_ns=time.monotonic_ns()
        )
        self.line(head)

    def line(self, value: object) -> None:
        """Write one line; what does not fit is counted."""
        try:
            text = json.dumps(value, separators=(",", ":"), default=str)
        except Exception as error:  # noqa: BLE001 - names of modules and groups may be anything
            self.lose("not written: %s" % type(error).__name__)
            return
        self.text(text)

    def text(self, text: str) -> None:
        """Write one line that is JSON already."""
        fd, losses = self._fd, self._losses
        if fd < 0:
            return
        if losses != self._told or self._is_torn:
            text = self._before() + text
        data = (text + "\n").encode("utf-8", "replace")
        try:
            done = os.write(fd, data)
        except OSError as error:
            self.lose("write failed: %s" % os.strerror(error.errno or 0))
            return
        if done == len(data):
            self._is_torn = False
            self._told = losses
        else:
            self._is_torn = True
            self.lose("written in part")

    def _before(self) -> str:
        """Return what is to be said before the next line: an end for a torn one, and what was lost."""
        start = "\n" if self._is_torn else ""
        with self._lock:
            lost = dict(self._lost)
        return start + "".join('["d",%s,%d]\n' % (json.dumps(why), count) for why, count in lost.items())

    def lose(self, why: str, records: int = 1) -> None:
        """Count records that are not in the file."""
        with self._lock:
            self._lost[why] = self._lost.get(why, 0) + records
            self._losses += 1

    def close(self) -> None:
        """Let go of the file; what is written from now on is dropped."""
        fd, self._fd = self._fd, -1
        try:
            os.close(fd)
        except OSError:
            pass


def _opened(folder: str, name: str) -> int:
    """Make a file of this process alone: in a container that starts again, host and process id may come again too."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    for life in range(1, _MOST_LIVES):
        again = "-%d" % life if life > 1 else ""
        try:
            return os.open(os.path.join(folder, "%s%s.jsonl" % (name, again)), flags, 0o600)  # noqa: PTH118
        except FileExistsError:
            continue
    raise OSError("%d files of %s are there already" % (_MOST_LIVES, name))


def _program() -> str:
    """Return the command line without its secrets, or only the program's name where the scrubber is not beside the package."""
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
        spec = spec_from_file_location("ringwright_scrub", os.path.join(package, "ground", "scrub.py"))  # noqa: PTH118
        scrub = module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(scrub)  # type: ignore[union-attr]
        return " ".join(scrub.words(sys.argv))
    except Exception:  # noqa: BLE001 - a program's name is worth no job
        return sys.argv[0] if sys.argv else ""


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def _life() -> str:
    """Return what the ranks of one start of a job have in common, and those of another start do not."""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    return "/".join(os.environ.get(name, "") for name in names).strip("/")[:_MOST_TEXT]
