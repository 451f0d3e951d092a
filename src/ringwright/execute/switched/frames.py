"""The wire: frames of the public SwitchML program, and short ones that workers and switch say the rest with.

A data frame is a UDP payload of one width for all of a job, all numbers big-endian::

    byte 0      message type (4 bits; 1: data), one unused, size code (3 bits: 0 = 128 B, 1 = 256, 2 = 512, 3 = 1024)
    byte 1      job
    bytes 2-5   tsi: the chunk's running number; the switch repeats it
    bytes 6-7   pool index: version (top bit), slot (low 14)
    then        values: 128 to 1024 bytes of int32 (or int8)
    2 bytes     exponent of the chunk that comes next in this slot
    8 bytes     a token, where switch and workers share a key

A control frame has the same header, a body of 24 bytes and, with a key, a code over all of it. Frames up to the exponent are
those of the public program (``headers.p4`` and ``parsers.p4`` of p4app-switchML; Sapio et al., NSDI 2021); token and control
frames are ours, for there a controller and the port of the switch say who a worker is.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringwright.ground.errors import UsageError

HEADER = np.dtype([("kind", "u1"), ("job", "u1"), ("tsi", ">u4"), ("pool", ">u2")])
HEADER_BYTES, EXPONENT_BYTES, TOKEN_BYTES, BODY_BYTES = 8, 2, 8, 24
CONTROL_BYTES = HEADER_BYTES + BODY_BYTES
SIZES = (128, 256, 512, 1024)  # bytes of values, by size code
ELEMENTS: dict[str, np.dtype[Any]] = {"int32": np.dtype(">i4"), "int8": np.dtype("i1")}  # on the wire
VERSION_BIT, SLOT_MASK = 0x8000, 0x3FFF
MOST_SLOTS, MOST_WORKERS = 8192, 32  # registers and bitmap of the public program

DATA, WAITING, JOIN, JOINED, LEAVE, REFUSED = 1, 9, 10, 11, 12, 13  # 1: as in the public program
_BODY = struct.Struct("!BBHHHIIQ")  # what, element, worker, workers, payload, slots, bitmap, session


@dataclass(frozen=True)
class FrameShape:
    """``element``: int32 or int8; ``payload_bytes``: of values in a frame; ``sealed``: whether a token ends it."""

    element: str = "int32"
    payload_bytes: int = 1024
    sealed: bool = False

    def __post_init__(self) -> None:
        """Refuse what no frame can be."""
        if self.element not in ELEMENTS:
            raise UsageError(f"no element '{self.element}' on the wire", remedy=f"one of: {', '.join(ELEMENTS)}")
        if self.payload_bytes not in SIZES:
            raise UsageError(
                f"frames do not carry {self.payload_bytes} bytes of values",
                remedy=f"one of: {', '.join(map(str, SIZES))}",
            )

    @property
    def elements(self) -> int:
        """Values in a frame."""
        return self.payload_bytes // ELEMENTS[self.element].itemsize

    @property
    def first_byte(self) -> int:
        """The first byte of every data frame: its type and size."""
        return DATA << 4 | SIZES.index(self.payload_bytes)

    @property
    def width(self) -> int:
        """Bytes of a data frame."""
        return HEADER_BYTES + self.payload_bytes + EXPONENT_BYTES + (TOKEN_BYTES if self.sealed else 0)

    def blank(self, count: int, job: int) -> np.ndarray:
        """Return data frames of a job with nothing in them. uint8 of shape (count, width)."""
        frames = np.zeros((count, self.width), np.uint8)
        frames[:, 0] = self.first_byte
        frames[:, 1] = job
        return frames

    def values(self, frames: np.ndarray) -> np.ndarray:
        """Return a view of the values in ``frames`` (uint8, one a row): of the wire's dtype and of shape (frames, elements)."""
        view: np.ndarray = frames[:, HEADER_BYTES : HEADER_BYTES + self.payload_bytes].view(ELEMENTS[self.element])
        return view

    def exponents(self, frames: np.ndarray) -> np.ndarray:
        """Return a view of the exponents. dtype int16, big-endian, of shape (frames,)."""
        at = HEADER_BYTES + self.payload_bytes
        view: np.ndarray = frames[:, at : at + EXPONENT_BYTES].view(">i2")[:, 0]
        return view


def headers(frames: np.ndarray) -> np.ndarray:
    """Return the headers of frames (uint8, one a row). dtype ``HEADER``, of shape (frames,)."""
    read: np.ndarray = np.ascontiguousarray(frames[:, :HEADER_BYTES]).view(HEADER)[:, 0]
    return read


def address(frames: np.ndarray, tsi: np.ndarray, slot: np.ndarray, version: np.ndarray) -> None:
    """Write chunk, slot and version into frames; each is of integer dtype and of shape (frames,)."""
    frames[:, 2:6] = tsi.astype(">u4").view(np.uint8).reshape(-1, 4)
    frames[:, 6:8] = (slot | version * VERSION_BIT).astype(">u2").view(np.uint8).reshape(-1, 2)


def token(key: bytes, session: int, job: int, speaker: int) -> np.ndarray:
    """Return what ends every data frame of a speaker: a worker's number, or -1 for the switch. uint8 of shape (8,)."""
    said = struct.pack("!QBi", session, job, speaker)
    return np.frombuffer(hashlib.blake2b(said, key=key, digest_size=TOKEN_BYTES).digest(), np.uint8)


def is_sealed(frames: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return which frames end with this token. bool of shape (frames,)."""
    same: np.ndarray = frames[:, -TOKEN_BYTES:].view(np.uint64)[:, 0] == expected.view(np.uint64)
    return same


@dataclass(frozen=True)
class ControlFrame:
    """What a control frame says. ``what``: a reason, or for WAITING how many levels above; ``bitmap``: workers seen there."""

    kind: int
    job: int
    what: int = 0
    worker: int = 0
    workers: int = 0
    shape: FrameShape = FrameShape()
    slots: int = 0
    bitmap: int = 0
    session: int = 0
    tsi: int = 0
    pool: int = 0

    def frame(self, key: bytes) -> bytes:
        """Return it as a frame, sealed where there is a key."""
        element = list(ELEMENTS).index(self.shape.element)
        said = struct.pack("!BBIH", self.kind << 4, self.job, self.tsi, self.pool) + _BODY.pack(
            self.what,
            element,
            self.worker,
            self.workers,
            self.shape.payload_bytes,
            self.slots,
            self.bitmap,
            self.session,
        )
        return said + _code(said, key)

    @classmethod
    def read(cls, frame: bytes, key: bytes) -> ControlFrame | None:
        """Return what a frame says; None where it is no control frame, or not sealed with the key."""
        if len(frame) != control_bytes(key) or not hmac.compare_digest(
            frame[CONTROL_BYTES:], _code(frame[:CONTROL_BYTES], key)
        ):
            return None
        kind, job, tsi, pool = struct.unpack("!BBIH", frame[:HEADER_BYTES])
        what, element, worker, workers, payload, slots, bitmap, session = _BODY.unpack(
            frame[HEADER_BYTES:CONTROL_BYTES]
        )
        if kind >> 4 not in (WAITING, JOIN, JOINED, LEAVE, REFUSED) or element >= len(ELEMENTS) or payload not in SIZES:
            return None
        shape = FrameShape(list(ELEMENTS)[element], payload, bool(key))
        return cls(kind >> 4, job, what, worker, workers, shape, slots, bitmap, session, tsi, pool)


def control_bytes(key: bytes) -> int:
    """Return how long a control frame is."""
    return CONTROL_BYTES + (TOKEN_BYTES if key else 0)


def _code(said: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(said, key=key, digest_size=TOKEN_BYTES).digest() if key else b""
