"""Rank 0 and each other rank joined by a TCP connection: small messages that go on when collectives do not."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from ringwright.execute import handshake
from ringwright.ground.errors import RanksFailedError

HEAD = struct.Struct("!BBIIII")
HAVE, ENDED, HASH, ORDER, ASK, FAIL, BYE, GO, SETTLED, BEGIN, OPENED = range(11)
SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class ControlMessage:
    """What one rank tells another: three numbers whose meaning goes with ``kind``, and a few bytes."""

    kind: int
    a: int = 0
    b: int = 0
    c: int = 0
    flag: int = 0
    body: bytes = b""

    def packed(self) -> bytes:
        """Return it as it goes over the wire."""
        return HEAD.pack(self.kind, self.flag, self.a, self.b, self.c, len(self.body)) + self.body


class ControlConnection:
    """A connection to one other rank."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._lock = end, Lock()

    @property
    def peer(self) -> str:
        """The address at which the other one was reached."""
        host: str = self._end.getpeername()[0]
        return host

    def send(self, message: ControlMessage) -> None:
        """Send; OSError where the other one has gone."""
        with self._lock:
            self._end.sendall(message.packed())

    def receive(self) -> ControlMessage | None:
        """Return the next message, None at the end of the connection."""
        head = self._exactly(HEAD.size)
        if head is None:
            return None
        kind, flag, a, b, c, length = HEAD.unpack(head)
        body = self._exactly(length) if length else b""
        return None if body is None else ControlMessage(kind, a, b, c, flag, body)

    def _exactly(self, size: int) -> bytes | None:
        received = bytearray()
        while len(received) < size:
            try:
                part = self._end.recv(size - len(received))
            except OSError:
                return None
            if not part:
                return None
            received += part
        return bytes(received)

    def close(self) -> None:
        """Close both directions, so that a reader wakes up."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


def addresses() -> list[str]:
    """Return the addresses of this machine: each interface's, then what its name stands for."""
    spelled = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                spelled.append(socket.inet_ntoa(answer[20:24]))
    with contextlib.suppress(OSError):
        spelled.append(socket.gethostbyname(socket.gethostname()))
    return list(dict.fromkeys([*spelled, "127.0.0.1"]))


def connect(rank: int, world: int, share: Callable[[Any], Any], timeout_s: float) -> dict[int, ControlConnection]:
    """Return connections by rank: rank 0 has one to each, the others one to rank 0; ``share`` broadcasts rank 0's object.

    RanksFailedError, naming who did not come, after ``timeout_s``.
    """
    if world == 1:
        return {}
    if rank:
        port, secret, known, host = share(None)
        near = host == socket.gethostname()
        return {
            0: ControlConnection(
                _joined(rank, port, secret, sorted(known, key=lambda each: (each == "127.0.0.1") != near))
            )
        }
    listener = socket.create_server(("", 0), backlog=world)
    secret = handshake.secret()
    share((listener.getsockname()[1], secret, addresses(), socket.gethostname()))
    connections: dict[int, ControlConnection] = {}
    until_s = time.monotonic() + timeout_s
    with listener:
        while len(connections) < world - 1:
            listener.settimeout(max(until_s - time.monotonic(), 0.01))
            try:
                end, _ = listener.accept()
            except TimeoutError:
                missing = sorted(set(range(1, world)) - set(connections))
                raise RanksFailedError(
                    f"rank 0 waited {timeout_s:g} s for rank {', '.join(map(str, missing))} to join the schedule",
                    remedy="every rank calls schedule(), and can reach rank 0 by TCP",
                ) from None
            who = handshake.greeted(end, secret)
            if who is not None:
                _quick(end)
                connections[who] = ControlConnection(end)
    return connections


def _joined(rank: int, port: int, secret: bytes, known: list[str]) -> socket.socket:
    for address in known * 3:
        try:
            end = socket.create_connection((address, port), timeout=5.0)
            if handshake.greet(end, secret, rank):
                _quick(end)
                return end
        except OSError:
            continue
    raise RanksFailedError(
        f"rank {rank} cannot reach rank 0 at {', '.join(known)}, port {port}",
        remedy="let TCP connections between the ranks' hosts through",
    )


def _quick(end: socket.socket) -> None:
    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
