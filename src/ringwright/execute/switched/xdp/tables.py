"""What the program in the kernel and the one on the socket tell each other: entries of its maps, as ``adds.c`` lays them out."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ringwright.execute.switched.xdp import compiling
from ringwright.execute.switched.xdp.loaded import LoadedProgram

COUNTS = ("frames", "added", "repeated", "stale", "mismatched", "malformed", "strangers", "lost", "results")
_U4 = struct.Struct("=I")
SEAT = np.dtype(
    [("ifindex", "u4"), ("address", "S4"), ("port", ">u2"), ("theirs", "V6"), ("ours", "V6"), ("zero", "u2")]
)
JOB = np.dtype(
    [(name, "u8") for name in ("sealed", "said", "upward", "heard")]
    + [(name, "u4") for name in ("first", "slots", "full", "width", "begins", "is_int8", "is_root", "is_on")]
    + [("above", SEAT)]
)
VERSION = np.dtype(
    [("seen", "u4"), ("held", "u4"), ("tsi", "u4"), ("exponent", "i2"), ("zero", "u2"), ("sums", "V1024")]
)
SLOT = np.dtype([("turn", "u4"), ("known", "u4"), ("newest", "u4", 32), ("versions", VERSION, 2)])
SIZES = {"settings": 24, "jobs": JOB.itemsize, "slots": SLOT.itemsize, "members": 16, "seats": SEAT.itemsize}
Address = tuple[str, int]


@dataclass(frozen=True)
class PortSeat:
    """Where somebody is reached: behind the port ``ifindex``. ``raw``: as the kernel holds it."""

    ifindex: int
    raw: bytes


class SwitchTables:
    """The program of a switch with so many slots, loaded and on no port yet."""

    def __init__(self, slots: int) -> None:
        self.loaded = LoadedProgram(compiling.image(), {"slots": slots})
        names = ("settings", "jobs", "slots", "members", "seats", "spoken", "counts", "ports")
        self._maps = {name: self.loaded.map(name) for name in names}
        self.adds, self.onward = self.loaded.program("adds"), self.loaded.program("onward")

    def settle(self, own: Address, above: Address | None, short_bytes: int, loses: float) -> None:
        """Say which frames are the switch's: those for its own address. ``loses``: the share of them that is lost."""
        host, port = own
        upper, upper_port = above or ("0.0.0.0", 0)  # noqa: S104 - nobody
        packed = socket.inet_aton(host) + socket.inet_aton(upper) + struct.pack("!HH", port, upper_port)
        value = packed + struct.pack("=HHQ", short_bytes, 0, int(loses * (1 << 32)))
        self.loaded.write(self._maps["settings"], _U4.pack(0), value)

    def job(self, number: int, entry: np.ndarray) -> None:
        """Write a job: one ``JOB``, of shape ()."""
        self.loaded.write(self._maps["jobs"], _U4.pack(number), entry.tobytes())

    def heard(self, number: int) -> int:
        """Return a number that grows as long as frames of a job come."""
        read = self.loaded.read(self._maps["jobs"], _U4.pack(number), JOB.itemsize)
        return int(np.frombuffer(read or bytes(JOB.itemsize), JOB)[0]["heard"])

    def empty(self, slots: range) -> None:
        """Forget what these slots hold."""
        for slot in slots:
            self.loaded.write(self._maps["slots"], _U4.pack(slot), bytes(SLOT.itemsize))

    def slot(self, number: int) -> np.ndarray:
        """Return what a slot holds. dtype ``SLOT``, of shape ()."""
        read = self.loaded.read(self._maps["slots"], _U4.pack(number), SLOT.itemsize)
        return np.frombuffer(read or bytes(SLOT.itemsize), SLOT)[0]  # type: ignore[no-any-return]

    def spoken(self, who: Address) -> PortSeat | None:
        """Return through which port a short frame of somebody came last."""
        raw = self.loaded.read(self._maps["spoken"], _sender(who), SEAT.itemsize)
        return None if raw is None else PortSeat(_U4.unpack_from(raw)[0], raw)

    def sends(self, port: int) -> None:
        """Let results leave through a port."""
        self.loaded.write(self._maps["ports"], _U4.pack(port), struct.pack("=Ii", port, self.onward))

    def admit(self, who: Address, job: int, worker: int, token: bytes, seat: PortSeat) -> None:
        """Take frames of a worker from now on, and send it results."""
        self.loaded.write(self._maps["seats"], struct.pack("=II", job, seat.ifindex), seat.raw)
        self.loaded.write(self._maps["members"], _sender(who), token + struct.pack("=II", job, worker))

    def dismiss(self, who: Address, job: int, seat: PortSeat) -> None:
        """Take no frames of a worker any more."""
        self.loaded.forget(self._maps["members"], _sender(who))
        self.loaded.forget(self._maps["seats"], struct.pack("=II", job, seat.ifindex))

    def counts(self) -> Mapping[str, int]:
        """Return what was counted so far, by ``COUNTS``."""
        size = 8 * self.loaded.cores()
        rows = [self.loaded.read(self._maps["counts"], _U4.pack(at), size) or bytes(size) for at in range(len(COUNTS))]
        return {name: int(np.frombuffer(row, np.uint64).sum()) for name, row in zip(COUNTS, rows, strict=True)}


def _sender(who: Address) -> bytes:
    return socket.inet_aton(who[0]) + struct.pack("!HH", who[1], 0)
