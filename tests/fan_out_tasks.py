"""What tests let executors do: functions that a worker can import."""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from ringwright.executors.fan_out import fan_out
from ringwright.ground.errors import UsageError


@dataclass(frozen=True)
class Root:
    """A number, its square root, and who found it."""

    number: int
    root: float
    process: int


def root(number: int) -> Root:
    """Return the root of a number; UsageError below 0."""
    if number < 0:
        raise UsageError(f"{number} has no root", where="here", remedy="a number above 0")
    return Root(number, number**0.5, os.getpid())


def noted(number: int, notes: str) -> int:
    """Return the number, after a tenth of a second of work, and leave a note that it was asked."""
    with Path(notes).open("a") as file:
        file.write(f"{number}\n")
    began_s = time.process_time()
    while time.process_time() - began_s < 0.1:
        pass
    return number


def killed_once(number: int, notes: str) -> int:
    """Return the number, but end the process the first time that 2 is asked."""
    if number == 2 and not Path(notes).exists():
        Path(notes).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def killed_always(number: int) -> int:
    """End the process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def hangs_once(number: int, notes: str) -> int:
    """Return the number, but come to no end the first time that 2 is asked."""
    if number == 2 and not Path(notes).exists():
        Path(notes).touch()
        time.sleep(3600)
    return number


def broken(number: int) -> int:
    """Fail as nobody foresaw."""
    return number // 0


def kills_at_seven(number: int) -> int:
    """Return the number after a while, but end the process where 7 is asked."""
    time.sleep(0.02)
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def fills_the_disk(number: int) -> int:
    """Fail as a task does that writes where no room is left."""
    raise OSError(errno.ENOSPC, "No space left on device", f"/scratch/{number}")


def shares_out(number: int) -> str:
    """Return who works for a task that asks for others itself."""
    with fan_out() as fan:
        fan.map(root, [(number,), (number + 1,)])
    return fan.account.name
