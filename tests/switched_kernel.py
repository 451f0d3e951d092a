"""A switch whose kernel adds, tried frame by frame without a network, beside the one in Python: every answer of both is compared."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from ringwright.execute.switched.switch import ABOVE, AddingSwitch, Sent, SwitchSettings
from ringwright.execute.switched.xdp.switch import KernelSwitch
from ringwright.execute.switched.xdp.tables import SEAT, PortSeat, SwitchTables
from ringwright.ground.errors import InfeasibleError

OWN, PARENT = ("10.9.255.1", 48864), ("10.9.255.2", 48864)
PASSED, SENT, DROPPED = 2, 4, 1
COMPARED = ("added", "repeated", "stale", "mismatched", "malformed", "strangers")
BEFORE = 42  # Ethernet, IPv4 and UDP


def tables_or_skip(slots: int) -> SwitchTables:
    """Return a loaded program; skip, and say why, where this machine has no XDP. What is wrong with the program is an error."""
    try:
        return SwitchTables(slots)
    except InfeasibleError as error:
        if not any(words in error.what for words in ("is missing", "does not let", "loads no programs")):
            raise
        pytest.skip(str(error))


class TriedSwitch(KernelSwitch):
    """Every frame goes through the program in the kernel, and through the switch in Python."""

    def __init__(self, settings: SwitchSettings, tables: SwitchTables) -> None:
        above = PARENT if settings.branch >= 0 else None
        super().__init__(settings, OWN, above, tables)
        self.twin = AddingSwitch(settings)
        self.names: dict[Any, tuple[str, int]] = {ABOVE: PARENT}
        self.before = dict(tables.counts())
        if "sends" not in vars(tables):
            tables.sends(1)
            tables.sends = lambda port: None  # type: ignore[method-assign] - one port is there for all of them

    def _address(self, name: Any) -> tuple[str, int]:
        return self.names.setdefault(name, (f"10.9.0.{len(self.names)}", 4000 + len(self.names)))

    def _seat(self, source: Any) -> PortSeat:
        """Return a port of its own for everybody; the kernel is told of the only one there is."""
        made = np.zeros((), SEAT)
        made["ifindex"], made["address"], made["port"] = 1, socket.inet_aton(source[0]), source[1]
        return PortSeat(100 + source[1], made.tobytes())

    @staticmethod
    def _sends(seat: PortSeat) -> bool:
        return bool(seat)

    def arrived(self, batch: Iterable[tuple[Any, np.ndarray]], now_s: float) -> Sent:
        """Take frames one by one; both switches must answer alike."""
        answers: Sent = []
        for source, frames in batch:
            for frame in frames:
                ours = self._one(source, frame, now_s)
                theirs = self.twin.arrived([(source, frame[None])], now_s)
                assert told(ours) == told(theirs), (source, bytes(frame[:8]))
                answers += theirs
        return answers

    def _one(self, source: Any, frame: np.ndarray, now_s: float) -> Sent:
        who = self._address(source)
        verdict, after = self.tables.loaded.run(self.tables.adds, packet(who, frame.tobytes()))
        if verdict == PASSED:
            return [
                (self._named(address), sent)
                for address, sent in super().arrived([(ABOVE if source == ABOVE else who, frame[None])], now_s)
            ]
        assert verdict in (SENT, DROPPED)
        if verdict == DROPPED:
            return []
        assert checked(after)
        target = socket.inet_ntoa(after[30:34]), int.from_bytes(after[36:38], "big")
        sent = np.frombuffer(after[BEFORE:], np.uint8)[None]
        if target == ("0.0.0.0", 0):
            return [(self._named(address), sent) for address in self.jobs[int(frame[1])].addresses.values()]
        return [(self._named(target), sent)]

    def _named(self, address: Any) -> Any:
        return next((name for name, each in self.names.items() if address in (each, name)), address)

    def agrees(self) -> None:
        """Both have counted alike."""
        ours, theirs = self.counts(), self.twin.counts()
        counted = {name: ours[name] - self.before[name] for name in COMPARED}
        assert counted == {name: theirs.get(name, 0) for name in COMPARED}


def told(sent: Sent) -> list[tuple[str, bytes]]:
    """Return answers one by one, in an order of their own."""
    rows = [
        (str(address), frame)
        for address, frames in sent
        for frame in ([frames] if isinstance(frames, bytes) else [row.tobytes() for row in frames])
    ]
    return sorted(rows)


def packet(source: tuple[str, int], payload: bytes, target: tuple[str, int] = OWN) -> bytes:
    """Return a frame of Ethernet with a datagram in it; the sum over its header is not looked at."""
    size = 20 + 8 + len(payload)
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(target[0])
    header = struct.pack("!BBHHHBBH", 0x45, 0, size, 7, 0, 9, 17, 0xBEEF) + addresses
    ethernet = b"\x02\0\0\0\0\1\x02\0\0\0\0\2\x08\0"
    return ethernet + header + struct.pack("!HHHH", source[1], target[1], size - 20, 0x1234) + payload


def checked(frame: bytes) -> bool:
    """Return whether the sum over a frame's IPv4 header is right, and its datagram without one."""
    words = sum(struct.unpack("!10H", frame[14:34]))
    return (words & 0xFFFF) + (words >> 16) == 0xFFFF and frame[40:42] == b"\0\0"
