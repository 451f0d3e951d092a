"""``ringwright switch`` as a process of ours: started, heard where it listens, and ended with whoever started it."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringwright.execute import launch
from ringwright.execute.switched.datagrams import parse
from ringwright.execute.switched.serving import READY
from ringwright.ground.errors import InfeasibleError

READY_S = 20.0
ENDS_S = 2.0


@dataclass(frozen=True)
class AskedSwitch:
    """One switch to start. ``listen``: HOST:PORT, port 0 for a free one; ``parent``: the switch above it.

    ``xdp``: the ports on which the kernel adds.
    """

    listen: str
    workers: int
    slots: int
    key_file: Path
    jobs: int = 1
    loss: float = 0.0
    parent: tuple[str, int] | None = None
    branch: int = -1
    xdp: str = ""

    def command(self) -> list[str]:
        """Return what runs it; it ends when its standard input does."""
        argv = [sys.executable, "-m", "ringwright", "switch", "--until-closed", "--listen", self.listen]
        argv += ["--workers", str(self.workers), "--slots", str(self.slots), "--jobs", str(self.jobs)]
        argv += ["--key-file", str(self.key_file)]
        argv += ["--lose", str(self.loss)] if self.loss else []
        argv += ["--xdp", self.xdp] if self.xdp else []
        if self.parent is not None:
            argv += ["--parent", "{}:{}".format(*self.parent), "--branch", str(self.branch)]
        return argv


@dataclass(frozen=True)
class StartedSwitch:
    """A switch that runs: where it listens, and its process."""

    address: tuple[str, int]
    process: subprocess.Popen[str]


@contextlib.contextmanager
def started(asked: AskedSwitch, before: Sequence[str] = ()) -> Iterator[StartedSwitch]:
    """Have a switch run, its command behind ``before``; InfeasibleError, with its own words, where it does not start."""
    process = subprocess.Popen(
        [*before, *asked.command()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=launch.rank_environment(),
        start_new_session=True,
        text=True,
    )
    try:
        yield StartedSwitch(_address(process), process)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_S)
        process.kill()
        process.communicate()


def _address(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Wait until a switch says where it listens; InfeasibleError where it does not."""
    assert process.stdout is not None  # noqa: S101 - it was asked for
    until_s = time.monotonic() + READY_S
    line = ""
    while time.monotonic() < until_s and not line and process.poll() is None:
        if select.select([process.stdout], [], [], 0.1)[0]:
            line = process.stdout.readline()
    if line.startswith(READY):
        return parse(line[len(READY) :].partition(": ")[0])
    process.kill()
    said = " ".join(process.communicate()[1].split())[-300:]
    raise InfeasibleError(
        "a switch that adds did not start", where=said or line, remedy="ringwright switch --workers 4"
    )
