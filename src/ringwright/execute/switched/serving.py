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
from typing import TYPE_CHECKING

from ringwright.execute import launch
from ringwright.execute.switched.datagrams import Datagrams
from ringwright.execute.switched.switch import ABOVE, AddingSwitch, SwitchSettings
from ringwright.ground.errors import InputError, UsageError

if TYPE_CHECKING:
    from ringwright.execute.switched.xdp.switch import KernelSwitch

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
    """A switch on a socket. ``parent``: the address of the switch above, if there is one; ``plain``: without trains.

    ``xdp``: the ports on which the kernel adds, ``eth0,eth1`` or ``all``; empty: this program does.
    """

    def __init__(
        self,
        settings: SwitchSettings,
        listen: tuple[str, int] = ("127.0.0.1", PORT),
        *,
        parent: tuple[str, int] | None = None,
        plain: bool = False,
        xdp: str = "",
    ) -> None:
        if not settings.key and not ipaddress.ip_address(listen[0]).is_loopback:
            raise UsageError(
                "a switch that others can reach needs a key", where=f"{listen[0]}:{listen[1]}", remedy="--key-file FILE"
            )
        if (parent is None) != (settings.branch < 0):
            raise UsageError("a switch below another has a number there", remedy="--parent HOST:PORT --branch 0")
        self.parent = parent
        self.wire = Datagrams(*listen, plain=plain)
        self.kernel = self._kernel(settings, xdp) if xdp else None
        self.switch: AddingSwitch = self.kernel or AddingSwitch(settings)
        self.batches = self.frames = 0

    def _kernel(self, settings: SwitchSettings, xdp: str) -> KernelSwitch:
        """Load the program, and put it on ports; nothing is left where that fails."""
        from ringwright.execute.switched.xdp.switch import KernelSwitch

        with contextlib.ExitStack() as failing:
            failing.callback(self.wire.close)
            if ipaddress.ip_address(self.wire.address[0]).is_unspecified:
                raise UsageError("the kernel adds for one address", remedy="--listen ADDRESS:PORT; ip address")
            made = KernelSwitch(settings, self.wire.address, self.parent)
            failing.callback(made.close)
            self.wire.notices.append(f"the kernel adds on {', '.join(made.attach(xdp))}")
            failing.pop_all()
        return made

    def lose(self, share: float) -> None:
        """Have the kernel lose a share of what comes, by lot: a fault, for trials."""
        (self.kernel or self.wire).lose(share)

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
        counts = {"frames": self.frames, "batches": self.batches, "strangers": 0, "lost": self.wire.lost}
        seen = self.switch.counts()
        if self.kernel is not None:
            counts["lost"] += seen.pop("lost")
        # Of frames the kernel's count holds: it has seen those that came to this side, too.
        return counts | seen | {"memory_bytes": self.switch.size_bytes}

    def close(self) -> None:
        """Close the socket, and take the program off its ports."""
        self.wire.close()
        if self.kernel is not None:
            self.kernel.close()


def _reads(closed: threading.Event) -> None:
    """Read standard input to its end."""
    while sys.stdin.buffer.read(1 << 16):
        pass
    closed.set()
