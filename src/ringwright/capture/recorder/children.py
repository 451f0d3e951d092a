"""What a parent learns of a recorded process that ended: its exit code, or the signal that killed it.

Loaded in launchers written in Python (torchrun, ``multiprocessing``). The line goes into the calls file of the process
that ended: nobody else writes there any more.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import time
from typing import Any

_MOST_LIVES = 100


def wrap_subprocess(module: Any) -> None:
    """Learn of the ends of what ``subprocess`` started."""
    original = module.Popen._handle_exitstatus

    @functools.wraps(original)
    def handle(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _tell(self.pid, self.returncode)
        return result

    module.Popen._handle_exitstatus = handle


def wrap_forks(module: Any) -> None:
    """Learn of the ends of what ``multiprocessing`` started."""
    original = module.Popen.poll

    @functools.wraps(original)
    def poll(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = self.returncode
        result = original(self, *args, **kwargs)
        if known is None and self.returncode is not None:
            _tell(self.pid, self.returncode)
        return result

    module.Popen.poll = poll


def _tell(pid: Any, code: Any) -> None:
    try:
        folder = os.environ.get("RINGWRIGHT_CAPTURE")
        if folder and code:
            ended(folder, pid, code)
    except Exception:  # noqa: BLE001, S110 - recording must not disturb
        pass


def ended(folder: str, pid: int, code: int) -> None:
    """Write how a process ended into its calls file, if it has one: ``code``, or a signal as its negative number."""
    path = _latest(folder, "calls.%s.%d" % (socket.gethostname(), pid))
    if path is None:
        return
    how, number = ("signal", -code) if code < 0 else ("exit", code)
    line = json.dumps(["y", time.monotonic_ns(), how, number, "", ""], separators=(",", ":"))
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(file, ("%s%s\n" % ("" if _is_whole(path) else "\n", line)).encode())
    finally:
        os.close(file)


def _latest(folder: str, name: str) -> str | None:
    latest = None
    for life in range(1, _MOST_LIVES):
        path = os.path.join(folder, "%s%s.jsonl" % (name, "-%d" % life if life > 1 else ""))  # noqa: PTH118
        if not os.path.exists(path):  # noqa: PTH110
            break
        latest = path
    return latest


def _is_whole(path: str) -> bool:
    """Whether the last line has its end: a process may be killed in the middle of one."""
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(0, os.SEEK_END)
        size = file.tell()
        if not size:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"
