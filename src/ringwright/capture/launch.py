"""Starts the job and waits for it: its output, input, terminal and exit code stay its own.

Signals that schedulers send to this process are passed on; Ctrl-C reaches the job by the terminal, as without a recorder. A recorder
that is killed leaves the job running and recording.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ringwright.errors import EXIT_INFEASIBLE, UsageError

LOOK_S = 0.1
GRACE_S = 10.0  # between SIGTERM and SIGKILL at the end of the time allowed
_PASSED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Ended:
    """How the job ended. ``code``: its own, 128 + the signal that ended it, or 5 where it was out of time."""

    code: int
    signal: int | None
    is_late: bool
    took_s: float


def launch(
    command: Sequence[str], environment: Mapping[str, str], *, timeout_s: float | None = None,
    stall_s: float | None = None, folder: Path | None = None, stalled: Callable[[float], None] | None = None,
) -> Ended:  # fmt: skip
    """Run a command to its end and return how it ended; UsageError where it cannot be started.

    ``stalled`` is called with the seconds since the last record when nothing in ``folder`` has grown for ``stall_s``; once, until
    something grows again.
    """
    if not command:
        raise UsageError("no command is named", remedy="ringwright run --out DIR -- torchrun train.py")
    began_s = time.monotonic()
    try:
        # A session of its own only where there is a time limit: then everything that it started can be ended.
        child = subprocess.Popen([*command], env={**os.environ, **environment}, start_new_session=timeout_s is not None)
    except OSError as error:
        raise UsageError(
            f"{command[0]} cannot be started: {error.strerror}", remedy="name a program on the PATH behind --"
        ) from error
    watch = _Watch(folder, stall_s, stalled)
    is_late = False
    with _passing(child, is_apart=timeout_s is not None):
        while child.poll() is None:
            if timeout_s is not None and time.monotonic() - began_s > timeout_s:
                is_late = True
                _end(child)
                break
            watch.look()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_S)
    code = child.wait()
    ended_by = -code if code < 0 else None
    own = 128 + ended_by if ended_by else code
    return Ended(EXIT_INFEASIBLE if is_late else own, ended_by, is_late, time.monotonic() - began_s)


@contextlib.contextmanager
def _passing(child: subprocess.Popen[bytes], *, is_apart: bool) -> Iterator[None]:
    """Pass signals on while the block runs. Ctrl-C: the terminal hands it to the job, or, to one in a session apart, we do."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if is_apart:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, number)

    before = {number: signal.signal(number, forward) for number in _PASSED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the job and all that it started."""
    for number, grace_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
            if number == signal.SIGKILL or not _lives(child.pid):
                return


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


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
