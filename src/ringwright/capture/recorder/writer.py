"""One process's calls file: each line goes to the kernel at once and whole, so that nothing is lost with the process.

Format: ``docs/calls-file.md``. A line that cannot be written (disk full, folder gone) is counted, and the count written as soon
as something can be.
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


class Writer:
    """Appends JSON lines; never raises after it was made."""

    def __init__(self, folder: str, source: str, library: str) -> None:
        host = socket.gethostname()
        name = "calls.%s.%d.jsonl" % (host, os.getpid())
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(os.path.join(folder, name), flags, 0o644)  # noqa: PTH118
        self._lost: dict[str, int] = {}
        self._is_torn = False
        self._lock = threading.Lock()
        head = {"ringwright": FORMAT, "source": source, "host": host, "pid": os.getpid(), "library": library}
        head.update(program=" ".join(sys.argv)[:_MOST_TEXT], rank=_number("RANK"), world=_number("WORLD_SIZE"))
        head.update(local_rank=_number("LOCAL_RANK"), wall_ns=time.time_ns(), clock_ns=time.monotonic_ns())
        self.line(head)

    def line(self, value: object) -> None:
        """Write one line; what does not fit is counted."""
        self.text(json.dumps(value, separators=(",", ":"), default=str))

    def text(self, text: str) -> None:
        """Write one line that is JSON already."""
        if self._lost or self._is_torn:
            text = self._before() + text
        data = (text + "\n").encode("utf-8", "replace")
        try:
            done = os.write(self._fd, data)
        except OSError as error:
            self.lose("write failed: %s" % (os.strerror(error.errno or 0)))
            return
        if done == len(data):
            self._is_torn = False
            self._lost = {}
        else:
            self._is_torn = True
            self.lose("written in part")

    def _before(self) -> str:
        start = "\n" if self._is_torn else ""
        with self._lock:
            lost = dict(self._lost)
        return start + "".join('["d",%s,%d]\n' % (json.dumps(why), count) for why, count in lost.items())

    def lose(self, why: str, records: int = 1) -> None:
        """Count records that are not in the file."""
        with self._lock:
            self._lost[why] = self._lost.get(why, 0) + records

    def close(self) -> None:
        """Let go of the file."""
        try:
            os.close(self._fd)
        except OSError:
            pass


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None
