"""What XDP can do on each port of this network namespace, as the kernel says over generic netlink (its family ``netdev``)."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

from ringwright.ground.errors import UsageError

GENERIC, CONTROL = 16, 0x10  # linux/netlink.h, genetlink.h
GET_FAMILY, FAMILY_ID, FAMILY_NAME = 3, 1, 2
GET_DEVICE, IFINDEX, FEATURES = 1, 1, 3  # linux/netdev.h
RUNS, SENDS = 1, 4  # a program runs on what comes in; what a program of another port sends on goes out
_HEADER = struct.Struct("=IHHIIBBH")  # length, type, flags, sequence, port; command, version, zero
_ERROR, _REQUEST = 2, 1


def features(port: int) -> int | None:
    """Return what a port can do, of ``RUNS`` and ``SENDS``; None where this kernel does not say (before 6.3)."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC) as kernel:
        kernel.bind((0, 0))
        family = _asked(kernel, CONTROL, GET_FAMILY, FAMILY_NAME, b"netdev\0").get(FAMILY_ID)
        if family is not None:
            said = _asked(kernel, struct.unpack("=H", family)[0], GET_DEVICE, IFINDEX, struct.pack("=I", port))
            if FEATURES in said:
                return int.from_bytes(said[FEATURES], "little" if struct.pack("=H", 1)[0] else "big")
    return None


def able() -> dict[str, int]:
    """Return name and number of the ports on which a program can run."""
    return {name: number for number, name in socket.if_nameindex() if (features(number) or 0) & RUNS}


def number(name: str) -> int:
    """Return the number of a port; UsageError where there is no such port."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        here = ", ".join(name for _, name in socket.if_nameindex())
        raise UsageError(f"no port '{name}' here", remedy=f"of: {here}") from None


def _asked(kernel: socket.socket, family: int, command: int, attribute: int, value: bytes) -> dict[int, bytes]:
    """Ask one thing; return the attributes of the answer, by number."""
    padded = struct.pack("=HH", 4 + len(value), attribute) + value + bytes(-len(value) % 4)
    kernel.send(_HEADER.pack(_HEADER.size + len(padded), family, _REQUEST, 1, 0, command, 1, 0) + padded)
    answer = kernel.recv(1 << 16)
    kind = struct.unpack_from("=H", answer, 4)[0]
    return {} if kind == _ERROR else dict(_attributes(answer[_HEADER.size :]))


def _attributes(rest: bytes) -> Iterator[tuple[int, bytes]]:
    while len(rest) >= 4:
        size, number = struct.unpack_from("=HH", rest)
        if not 4 <= size <= len(rest):
            return
        yield number & 0x3FFF, rest[4:size]
        rest = rest[(size + 3) // 4 * 4 :]
