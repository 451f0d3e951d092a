"""Starts the job and waits for it: its output, input, terminal and exit code stay its own.

Signals that schedulers send to this process are passed on; Ctrl-C reaches the job by the terminal, as without a recorder. A
recorder that is killed leaves the job running and recording. With a time limit all that the job started is ended with it, also
what made sessions of its own (torchrun's workers) or lost its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

from ringwright.ground.errors import EXIT_INFEASIBLE, UsageError

LOOK_S = 0.1
GRACE_S = 10.0  # between SIGTERM and SIGKILL at the end of the time allowed
KILL_S = 5.0  # for the kernel to take what was killed
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_PASSED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class JobExit:
    """How the job ended. ``code``: its own, 128 + the signal that ended it, or 5 where it was out of time."""

    code: int
    signal: int | None
    is_late: bool
    took_s: float


def launch(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float | None = None,
    stall_s: float | None = None,
    folder: Path | None = None,
    stalled: Callable[[float], None] | None = None,
) -> JobExit:
    """Run a command to its end and return how it ended; UsageError where it cannot be started.

    ``stalled`` is called with the seconds since the last record when nothing in ``folder`` has grown for ``stall_s``; once, until
    something grows again.
    """
    if not command:
        raise UsageError("no command is named", remedy="ringwright run -o DIR -- torchrun train.py")
    began_s = time.monotonic()
    is_apart = timeout_s is not None
    if is_apart:
        _adopt_orphans()
    watch = _Watch(folder, stall_s, stalled)
    is_late = False
    with _Passing(is_apart=is_apart) as passing:
        try:
            # A session of its own only where there is a time limit: then a terminal's signals do not reach it twice.
            child = subprocess.Popen([*command], env={**os.environ, **environment}, start_new_session=is_apart)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(
                f"{command[0]} cannot be started: {why}", remedy="name a program on the PATH behind --"
            ) from error
        passing.begin(child)
        while child.poll() is None:
            if timeout_s is not None and time.monotonic() - began_s > timeout_s:
                is_late = True
                _end_all()
                break
            watch.look()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_S)
        code = child.wait()
    ended_by = -code if code < 0 else None
    own = 128 + ended_by if ended_by else code
    return JobExit(EXIT_INFEASIBLE if is_late else own, ended_by, is_late, time.monotonic() - began_s)


class _Passing:
    """Passes signals on while it is entered; those that come before the child is there are kept for it.

    Ctrl-C: the terminal hands it to the job too, unless that is in a session apart, or no terminal sent it.
    """

    def __init__(self, *, is_apart: bool) -> None:
        self._is_apart = is_apart
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (*_PASSED, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
                self._before[number] = signal.signal(number, self._forward)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self, child: subprocess.Popen[bytes]) -> None:
        """From now on there is somebody to pass signals on to."""
        self._child = child
        for number in self._early:
            self._forward(number, None)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        elif number != signal.SIGINT:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)
        elif self._is_apart:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)
        elif not _is_foreground():
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)


def _is_foreground() -> bool:
    """Whether a terminal's Ctrl-C goes to this process, and so to the job in the same group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _adopt_orphans() -> None:
    """Become the parent of what loses its own, so that it can be found; without Linux's call for it, do without."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _end_all() -> None:
    """End the job and all that it started: asked first, killed where that is not enough."""
    for number, grace_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_S)):
        until = time.monotonic() + grace_s
        asked: set[int] = set()
        while (alive := _descendants(os.getpid())) and time.monotonic() < until:
            for pid in alive if number == signal.SIGKILL else alive - asked:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            asked |= alive
            time.sleep(LOOK_S / 2)


def _descendants(ancestor: int) -> set[int]:
    """Return the processes that descend from one and still live, by what /proc tells."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(path.parent.name))
    descendants: set[int] = set()
    todo = [ancestor]
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in descendants]
        descendants.update(new)
        todo += new
    return descendants


class _Watch:
    """Looks whether the recording still grows."""

    def __init__(self, folder: Path | None, stall_s: float | None, stalled: Callable[[float], None] | None) -> None:
        self._folder, self._stall_s, self._stalled = folder, stall_s, stalled
        self._seen: tuple[int, int] = (0, 0)
        self._moved_s = self._looked_s = time.monotonic()
        self._is_told = False

    def look(self) -> None:
        """Compare the sizes of the files with those seen last; at most twenty times within the time allowed."""
        now_s = time.monotonic()
        if self._folder is None or not self._stall_s or self._stalled is None:
            return
        if now_s - self._looked_s < min(1.0, self._stall_s / 20):
            return
        self._looked_s = now_s
        size = _size(self._folder)
        if size != self._seen:
            self._seen, self._moved_s, self._is_told = size, now_s, False
        elif size[0] and not self._is_told and now_s - self._moved_s > self._stall_s:
            self._is_told = True
            self._stalled(now_s - self._moved_s)
            self._seen = _size(self._folder)  # what was asked for is no sign of life


def _size(folder: Path) -> tuple[int, int]:
    """Return how many calls files there are, and their bytes."""
    count = total = 0
    for path in folder.glob("calls.*.jsonl"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
            count += 1
    return count, total
