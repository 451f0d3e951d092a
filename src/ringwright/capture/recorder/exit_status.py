"""How this process ends: the exception that nobody caught, the code it leaves with; told at once, before others notice.

What ends a process from outside (a signal) only its parent learns: ``children``.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Any

_MOST_TEXT = 300
_state: dict[str, Any] = {}


def watch(job: Any) -> None:
    """Tell of the end of this process from now on."""
    _state.update(job=job, told=False, left=None)
    sys.excepthook = _around_hook(sys.excepthook)
    sys.exit = _around_exit(sys.exit)
    os._exit = _around_leaving(os._exit)


def leaving() -> None:
    """At the end of the process, in order: an exception whose hook is not ours, or the code of ``sys.exit``."""
    job = _mine()
    if job is None or _state["told"]:
        return
    error = getattr(sys, "last_value", None)
    if error is not None:
        _raised(error)
    elif _state["left"] is not None and _state["left"][1] == _calls(job):
        code, words = _state["left"][0]
        if code:
            _tell("exit", code, "sys.exit", words)


def _mine() -> Any:
    job = _state.get("job")
    return job if job is not None and job.pid == os.getpid() else None


def _calls(job: Any) -> int:
    """Return how many calls were made: one after ``sys.exit`` shows that somebody caught it."""
    return int(job.calls.__reduce__()[1][0])


def _tell(how: str, code: int | None, kind: str, words: str) -> None:
    _state["told"] = True
    _state["job"].writer.line(["y", time.monotonic_ns(), how, code, kind[:100], words[:_MOST_TEXT]])


def _raised(error: BaseException) -> None:
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot say what it is
        words = ""
    _tell("exception", 1, type(error).__name__, words)


def _around_hook(original: Any) -> Any:
    @functools.wraps(original)
    def hook(kind: Any, error: Any, trace: Any) -> Any:
        if _mine() is not None and error is not None and not _state["told"]:
            _raised(error)
        return original(kind, error, trace)

    return hook


def _around_exit(original: Any) -> Any:
    @functools.wraps(original)
    def leave(*args: Any) -> Any:
        job = _mine()
        if job is not None:
            _state["left"] = (_meaning(args[0] if args else None), _calls(job))
        return original(*args)

    return leave


def _meaning(code: Any) -> tuple[int, str]:
    """Return the code that Python makes of what ``sys.exit`` is given, and the words where it is given words."""
    if code is None or isinstance(code, int):
        return int(code or 0), ""
    return 1, str(code)


def _around_leaving(original: Any) -> Any:
    @functools.wraps(original)
    def leave(status: Any) -> Any:
        if _mine() is not None and not _state["told"]:
            try:
                _tell("exit", int(status), "os._exit", "")
            except Exception:  # noqa: BLE001, S110 - whatever it is given, it leaves
                pass
        return original(status)

    return leave
