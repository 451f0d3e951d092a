"""Many datagrams in one system call: ``recvmmsg`` of the C library, for which Python's sockets have no name.

One by one, the call and its objects cost more than all that is then done with a frame.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Hashable

import numpy as np

SOL_UDP, UDP_GRO = 17, 104
ROWS = 64  # messages in one call
ROOM = 1 << 16  # for the largest datagram or train
STRIDE = ROOM + 17 * 64  # rows that begin alike in every page would push each other out of the cache
NAME_BYTES, CONTROL_BYTES = 16, 32
# struct mmsghdr, iovec, and the control message with a train's width, as 64-bit Linux lays them out.
_MESSAGE = np.dtype(
    {
        "names": ["name", "name_bytes", "parts", "n_parts", "control", "control_bytes", "flags", "size"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
_PART = np.dtype([("at", "u8"), ("size", "u8")])
_WIDTH = np.dtype(
    {"names": ["level", "kind", "width"], "formats": ["i4", "i4", "i4"], "offsets": [8, 12, 16], "itemsize": 32}
)

Batch = list[tuple[Hashable, np.ndarray]]


def has_many() -> bool:
    """Return whether this machine's C library has the call, with structures as they are laid out here."""
    return sys.platform == "linux" and struct.calcsize("P") == 8 and hasattr(ctypes.CDLL(None), "recvmmsg")


class ManyReceiver:
    """Receives from a UDP socket; frames are good until the next call."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._call = ctypes.CDLL(None, use_errno=True).recvmmsg
        self._rows = np.zeros((ROWS, STRIDE), np.uint8)
        self._names = np.zeros((ROWS, NAME_BYTES), np.uint8)
        self._control = np.zeros(ROWS, _WIDTH)
        self._parts = np.zeros(ROWS, _PART)
        self._messages = np.zeros(ROWS, _MESSAGE)
        rows = np.arange(ROWS, dtype=np.uint64)
        self._parts["at"], self._parts["size"] = self._rows.ctypes.data + rows * np.uint64(STRIDE), ROOM
        self._messages["name"] = self._names.ctypes.data + rows * np.uint64(NAME_BYTES)
        self._messages["control"] = self._control.ctypes.data + rows * np.uint64(CONTROL_BYTES)
        self._messages["parts"] = self._parts.ctypes.data + rows * np.uint64(_PART.itemsize)
        self._messages["n_parts"] = 1
        self._at = ctypes.c_void_p(self._messages.ctypes.data)
        self._senders: dict[int, tuple[str, int]] = {}

    def receive(self) -> tuple[Batch, bool]:
        """Return what has come, by sender and width, in order, and whether more may wait; OSError as of the call."""
        messages = self._messages
        messages["name_bytes"], messages["control_bytes"] = NAME_BYTES, CONTROL_BYTES
        count = self._call(self._end.fileno(), self._at, ROWS, socket.MSG_DONTWAIT, None)
        if count < 0:
            code = ctypes.get_errno()
            if code in (errno.EAGAIN, errno.EINTR):
                return [], False
            raise OSError(code, os.strerror(code))
        sizes = messages["size"][:count].astype(np.intp)
        told = self._control[:count]
        is_train = (messages["control_bytes"][:count] >= 20) & (told["level"] == SOL_UDP) & (told["kind"] == UDP_GRO)
        widths = np.where(is_train, told["width"], sizes)
        senders = self._names[:count, :8].copy().view(np.uint64)[:, 0]
        return self._sorted(sizes, widths, senders), count == ROWS

    def _sorted(self, sizes: np.ndarray, widths: np.ndarray, senders: np.ndarray) -> Batch:
        batch: Batch = []
        for sender in dict.fromkeys(senders.tolist()):
            rows = np.flatnonzero(senders == sender)
            width = int(widths[rows[0]])
            if (widths[rows] == width).all() and (sizes[rows] == width).all():
                if width:
                    batch.append((self._named(sender, int(rows[0])), self._rows[rows, :width]))
                continue
            parts: dict[int, list[np.ndarray]] = {}
            for row in rows.tolist():
                size, width = int(sizes[row]), int(widths[row])
                whole = size // width * width if width else 0
                if whole:
                    parts.setdefault(width, []).append(self._rows[row, :whole].reshape(-1, width))
                if whole < size:  # the last of a train may be shorter
                    parts.setdefault(size - whole, []).append(self._rows[row, whole:size][None])
            name = self._named(sender, int(rows[0]))
            batch += [(name, each[0] if len(each) == 1 else np.concatenate(each)) for each in parts.values()]
        return batch

    def _named(self, sender: int, row: int) -> tuple[str, int]:
        known = self._senders.get(sender)
        if known is None:
            if len(self._senders) > 4096:  # strangers do not fill the memory
                self._senders.clear()
            raw = self._names[row].tobytes()
            known = self._senders[sender] = socket.inet_ntoa(raw[4:8]), int.from_bytes(raw[2:4], "big")
        return known
