"""UDP in bulk: trains of equal datagrams in one call where the kernel can (GSO out, GRO in), one by one where it cannot.

A datagram costs some microseconds each way, a train of sixty hardly more. Both come with Linux (4.18 and 5.0).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import select
import socket
import struct
from collections.abc import Hashable
from typing import Any

import numpy as np

from ringwright.execute.switched.many import SOL_UDP, UDP_GRO, Batch, ManyReceiver, has_many
from ringwright.ground.errors import InfeasibleError, UsageError

UDP_SEGMENT = 103
MOST_SEGMENTS, MOST_BYTES = 60, 65000
ROWS_BYTES = 4 << 20
BUFFER_BYTES = 4 << 20  # asked of the kernel, which gives what it allows
ROOM = 1 << 16  # for the largest datagram or train
MOST_RECEIVES = 256  # in one batch
_ATTACH_FILTER, _RANDOM = 26, 0xFFFFF038  # Linux: SO_ATTACH_FILTER, and where its filters find a random number
PATIENCE_S = 0.2  # for the kernel to take what is sent
_LOST = {errno.EPERM, errno.ENOBUFS, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH}
_NO_TRAINS = {errno.EIO, errno.EINVAL, errno.EOPNOTSUPP, errno.EMSGSIZE}


class Datagrams:
    """A socket on ``(host, port)``; ``plain``: without trains. ``notices`` say what the kernel does not have."""

    def __init__(self, host: str, port: int, *, plain: bool = False) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.notices: list[str] = []
        self.lost = 0  # that the kernel did not take
        try:
            self.socket.bind((host, port))
        except OSError as error:
            self.socket.close()
            raise _refusal(host, port, error) from None
        self.socket.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self.segments = not plain and self._has(UDP_SEGMENT, 0, "sends each datagram by itself")
        self._merges = not plain and self._has(UDP_GRO, 1, "receives each datagram by itself")
        self._many = ManyReceiver(self.socket) if not plain and has_many() else None
        self._rows = np.zeros(0 if self._many else ROWS_BYTES, np.uint8)
        self._view = memoryview(self._rows)  # type: ignore[arg-type]

    def _has(self, option: int, value: int, instead: str) -> bool:
        try:
            self.socket.setsockopt(SOL_UDP, option, value)
        except OSError:
            name = "UDP GRO" if option == UDP_GRO else "UDP GSO"
            self.notices.append(f"this kernel has no {name}: a switch {instead}, and is slower")
            return False
        return True

    def lose(self, share: float) -> None:
        """Have the kernel lose a share of what comes from now on, by lot: a fault, for trials."""
        if not 0 <= share < 1:
            raise UsageError(f"a share of {share:g} cannot be lost", remedy="from 0 to below 1, such as 0.01")
        # The classic packet filter: load a random number; at the threshold or above keep all of it, else nothing.
        steps = [(0x20, 0, 0, _RANDOM), (0x35, 0, 1, int(share * (1 << 32))), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        program = struct.pack("HP", len(steps), ctypes.addressof(code))
        self.socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self.socket.getsockname()
        return host, port

    def fileno(self) -> int:
        """Return the socket's number, for select."""
        return self.socket.fileno()

    def wait(self, most_s: float) -> None:
        """Return when something has come, or after a time."""
        select.select([self.socket], [], [], most_s)

    def receive(self) -> Batch:
        """Return what has come, by sender and width, in order: uint8 frames, one a row, good until the next call."""
        if self._many is not None:
            return self._at_once(self._many)
        trains: list[list[Any]] = []  # sender, first byte, end, width
        at = 0
        for _ in range(MOST_RECEIVES):
            if at + ROOM > ROWS_BYTES:
                break
            try:
                size, width, sender = self._one(at)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _LOST:
                    continue
                raise
            if not size:
                continue
            last = trains[-1] if trains else None
            if last and last[0] == sender and last[3] == width == size and last[2] == at:
                last[2] = at + size
            else:
                trains.append([sender, at, at + size, width])
            at += size
        return self._sorted(trains)

    def _at_once(self, many: ManyReceiver) -> Batch:
        batch: Batch = []
        more = True
        while more and len(batch) < MOST_RECEIVES:
            try:
                came, more = many.receive()
            except OSError as error:
                if error.errno in _LOST:
                    continue
                raise
            batch += [(sender, frames.copy()) for sender, frames in came] if more else came
        return batch

    def _one(self, at: int) -> tuple[int, int, Hashable]:
        """Receive a datagram or a train into the rows; return its size, the width of its datagrams, and from whom."""
        room = self._view[at : at + ROOM]
        if not self._merges:
            size, sender = self.socket.recvfrom_into(room)
            return size, size, sender
        size, ancillary, _, sender = self.socket.recvmsg_into([room], 32)
        width = size
        for level, kind, value in ancillary:
            if (level, kind) == (SOL_UDP, UDP_GRO):
                width = struct.unpack("i", value[:4])[0]
        return size, width, sender

    def _sorted(self, trains: list[list[Any]]) -> Batch:
        parts: dict[tuple[Hashable, int], list[np.ndarray]] = {}
        for sender, begin, end, width in trains:
            whole = (end - begin) // width * width
            if whole:
                parts.setdefault((sender, width), []).append(self._rows[begin : begin + whole].reshape(-1, width))
            if begin + whole < end:  # the last of a train may be shorter
                rest = self._rows[begin + whole : end]
                parts.setdefault((sender, len(rest)), []).append(rest[None])
        return [(sender, each[0] if len(each) == 1 else np.concatenate(each)) for (sender, _), each in parts.items()]

    def send(self, address: Any, frames: np.ndarray | bytes) -> None:
        """Send frames (uint8, one a row), or one as bytes. What the kernel does not take in time is lost, as on any wire."""
        if isinstance(frames, bytes):
            self._give(frames, [], address)
            return
        count, width = frames.shape
        most = max(1, min(MOST_SEGMENTS, MOST_BYTES // width)) if self.segments else 1
        whole = memoryview(np.ascontiguousarray(frames)).cast("B")  # type: ignore[arg-type]
        begin = 0
        while begin < count:
            end = min(begin + most, count)
            train = [(SOL_UDP, UDP_SEGMENT, struct.pack("H", width))] if end - begin > 1 else []
            if not self._give(whole[begin * width : end * width], train, address):
                self.segments, most = False, 1
                self.notices.append(
                    "this device takes no trains of datagrams: each is sent by itself, and that is slower"
                )
                continue
            begin = end

    def _give(self, data: Any, ancillary: list[Any], address: Any) -> bool:
        """Hand data to the kernel; False where it takes no trains."""
        for _ in range(2):
            try:
                self.socket.sendmsg([data], ancillary, 0, address)
                return True
            except BlockingIOError:
                select.select([], [self.socket], [], PATIENCE_S)
            except OSError as error:
                if ancillary and error.errno in _NO_TRAINS:
                    return False
                if error.errno not in _LOST:
                    raise
                break
        self.lost += 1
        return True

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self.socket.close()


def parse(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; UsageError where it is something else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"'{text}' is no address", remedy="HOST:PORT, such as 127.0.0.1:48864")
    try:
        return socket.gethostbyname(host), int(port)
    except OSError as error:
        raise UsageError(f"'{host}' is no host of this network: {error.strerror}", remedy="127.0.0.1:48864") from None


def _refusal(host: str, port: int, error: OSError) -> Exception:
    where, remedy = f"{host}:{port}", "another port, --listen HOST:PORT; 0 takes a free one"
    if error.errno == errno.EADDRINUSE:
        return InfeasibleError("the port is taken by another program", where=where, remedy=remedy)
    if error.errno == errno.EADDRNOTAVAIL:
        return UsageError("this machine has no such address", where=where, remedy="--listen 127.0.0.1:PORT; ip address")
    return InfeasibleError(f"the port cannot be used: {error.strerror}", where=where, remedy=remedy)
