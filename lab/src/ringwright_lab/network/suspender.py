"""Ranks that are slowed, stopped or killed for real: signals to every process that runs in a node's namespace.

A slow rank is stopped for a share of every 20 ms, so that computing and calls into the network take their factor longer, while
the kernel goes on to acknowledge what arrives: a straggler, not a slow wire.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ringwright_lab.network.namespaces import Inside

PERIOD_S = 0.02
LOOK_S = 0.2  # how often a slow rank is searched for new processes


def processes(inside: Inside) -> list[int]:
    """Return the processes that live in a node, its holder left out."""
    holder = Path(f"/proc/{inside.pid}/ns")
    network, family = (holder / "net").readlink(), (holder / "pid").readlink()
    living = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # Their parents outside share the network namespace, but not that of the process numbers.
            if (path / "ns/net").readlink() == network and (path / "ns/pid").readlink() == family:
                living.append(int(path.name))
    return [number for number in living if number != inside.pid]


def send(numbers: Iterable[int], what: signal.Signals) -> None:
    """Send a signal to processes, some of which may be gone."""
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, what)


class Suspender:
    """Holds one rank back: ``factor`` is the share of its speed that is left, 0 for stopped."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self.factor, self.is_stopped = 1.0, False
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def set(self) -> None:
        """Let the values of ``factor`` and ``is_stopped`` hold."""
        held = self.is_stopped or self.factor < 1.0
        if held and self._thread is None:
            self._end.clear()
            self._thread = threading.Thread(target=self._hold, name=f"suspender {self._inside.name}", daemon=True)
            self._thread.start()
        elif not held and self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None

    def kill(self) -> int:
        """Kill everything that lives in the node; return how many processes."""
        living = processes(self._inside)
        send(living, signal.SIGKILL)
        return len(living)

    def close(self) -> None:
        """Let go."""
        self.factor, self.is_stopped = 1.0, False
        self.set()

    def _hold(self) -> None:
        looked_s, living = -LOOK_S, list[int]()
        while not self._end.is_set():
            if time.monotonic() - looked_s > LOOK_S:
                looked_s = time.monotonic()
                with suppress(OSError):  # the lab is ending
                    living = processes(self._inside)
            send(living, signal.SIGSTOP)
            share = 0.0 if self.is_stopped else self.factor
            self._end.wait(PERIOD_S * (1.0 - share))
            if share:
                send(living, signal.SIGCONT)
                self._end.wait(PERIOD_S * share)
        with suppress(OSError):
            send(processes(self._inside), signal.SIGCONT)
