"""The switch as a program: one process, one socket, one loop."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import math
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ringwright.errors import InputError, UsageError
from ringwright.execute import launch
from ringwright.execute.switched.datagrams import Datagrams
from ringwright.execute.switched.switch import ABOVE, AddingSwitch, SwitchSettings

PORT = 0xBEE0  # the first of the public program's sixteen
COALESCE_S = 0.0008  # more frames come meanwhile, and many cost hardly more than one
READY = "switch at "  # begins the line that says where it listens
MANY = 16  # frames in a batch from which on others are waited for
LOOK_S = 0.2
LEAST_KEY_BYTES = 8
MOST_KEY_BYTES = 4096


def read_key(path: Path) -> bytes:
    """Return the key that a file holds; InputError where there is none in it."""
    try:
        with path.open("rb") as file:
            said = file.read(MOST_KEY_BYTES).strip()
    except OSError as error:
        raise InputError(f"the key cannot be read: {error.strerror}", where=str(path), remedy=MAKE_KEY) from None
    if len(said) < LEAST_KEY_BYTES:
        raise InputError(f"a key has {LEAST_KEY_BYTES} bytes or more", where=str(path), remedy=MAKE_KEY)
    return hashlib.blake2b(said, digest_size=32).digest()


MAKE_KEY = "head -c 32 /dev/urandom | base64 > switch.key; chmod 600 switch.key"


class SwitchServer:
    """A switch on a socket. ``parent``: the address of the switch above, if there is one; ``plain``: without trains."""

    def __init__(
        self,
        settings: SwitchSettings,
        listen: tuple[str, int] = ("127.0.0.1", PORT),
        *,
        parent: tuple[str, int] | None = None,
        plain: bool = False,
    ) -> None:
        if not settings.key and not ipaddress.ip_address(listen[0]).is_loopback:
            raise UsageError(
                "a switch that others can reach needs a key", where=f"{listen[0]}:{listen[1]}", remedy="--key-file FILE"
            )
        if (parent is None) != (settings.branch < 0):
            raise UsageError("a switch below another has a number there", remedy="--parent HOST:PORT --branch 0")
        self.parent = parent
        self.switch = AddingSwitch(settings)
        self.wire = Datagrams(*listen, plain=plain)
        self.batches = self.frames = 0

    def step(self, most_s: float = LOOK_S) -> int:
        """Wait for frames, for a time at most, and answer them; return how many came."""
        self.wire.wait(most_s)
        batch = [(ABOVE if sender == self.parent else sender, frames) for sender, frames in self.wire.receive()]
        if not batch:
            return 0
        came = sum(len(frames) for _, frames in batch)
        self.batches += 1
        self.frames += came
        for address, frames in self.switch.arrived(batch, time.monotonic()):
            self.wire.send(self.parent if address == ABOVE else address, frames)
        return came

    def run(self, until: Callable[[], bool]) -> None:
        """Serve until told to stop."""
        while not until():
            if self.step() > MANY:
                time.sleep(COALESCE_S)

    def serve(self, lasts_s: float | None = None, *, until_closed: bool = False) -> None:
        """Serve for a time, until standard input is closed, or until Ctrl-C or SIGTERM, and close the socket."""
        until_s = math.inf if lasts_s is None else time.monotonic() + lasts_s
        closed = threading.Event()
        if until_closed:
            threading.Thread(target=_reads, args=(closed,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt), launch.terminable():
            self.run(lambda: closed.is_set() or time.monotonic() >= until_s)
        self.close()

    def told(self) -> dict[str, int]:
        """Return what was counted so far."""
        counts = {
            "frames": self.frames,
            "batches": self.batches,
            "strangers": self.switch.strangers,
            "lost": self.wire.lost,
        }
        for job in self.switch.jobs.values():
            for name, count in job.pool.counts.items():
                counts[name] = counts.get(name, 0) + count
        return counts | {"memory_bytes": self.switch.size_bytes}

    def close(self) -> None:
        """Close the socket."""
        self.wire.close()


def _reads(closed: threading.Event) -> None:
    """Read standard input to its end."""
    while sys.stdin.buffer.read(1 << 16):
        pass
    closed.set()
