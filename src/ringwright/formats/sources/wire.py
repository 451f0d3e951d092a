"""The protobuf wire format, as far as the recordings read here need it: bounded, without a protobuf library.

A file of execution traces is a run of messages, each behind its length as a base-128 varint. Source: protobuf's encoding page.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import BinaryIO

from ringwright.formats.sources.members import up_to

MOST_MESSAGE_BYTES = 256 << 20
MOST_FIELDS = 4_000_000  # of one message
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are no protobuf message; ``args[0]`` says why."""


def framed(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, message) of a length-prefixed file; WireError where it is cut or a length is impossible."""
    offset = 0
    while True:
        prefix = _prefix(stream, offset)
        if prefix is None:
            return
        size, taken = prefix
        if size > MOST_MESSAGE_BYTES:
            raise WireError(f"a length of {size} bytes at byte {offset} (at most {MOST_MESSAGE_BYTES} are read)")
        message = up_to(stream, size)
        if len(message) < size:
            raise WireError(f"cut at byte {offset + taken + len(message)}: a message of {size} bytes began at {offset}")
        yield offset, message
        offset += taken + size


def _prefix(stream: BinaryIO, offset: int) -> tuple[int, int] | None:
    """Return a length and the bytes that wrote it, None at the end of the file."""
    size = 0
    for byte_number in range(10):
        byte = stream.read(1)
        if not byte:
            if byte_number:
                raise WireError(f"cut at byte {offset + byte_number}, within a length")
            return None
        size |= (byte[0] & 0x7F) << 7 * byte_number
        if byte[0] < 0x80:
            return size, byte_number + 1
    raise WireError(f"no length at byte {offset}: a varint of more than ten bytes")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number and the place behind it."""
    piece = data[at : at + 10]
    if piece and piece[0] < 0x80:  # most are of one byte
        return piece[0], at + 1
    value = shift = 0
    for at_byte, byte in enumerate(piece, at):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at_byte + 1
        shift += 7
    raise WireError("a varint does not end")


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (field number, wire type, value); numbers for varints, bytes for all else."""
    at = count = 0
    end = len(data)
    while at < end:
        count += 1
        if count > MOST_FIELDS:
            raise WireError(f"more than {MOST_FIELDS} fields in one message")
        tag, at = (data[at], at + 1) if data[at] < 0x80 else varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        if kind == LENGTH:
            size, at = (data[at], at + 1) if at < end and data[at] < 0x80 else varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"wire type {kind} of field {number}")
        if number == 0 or at + size > end:
            raise WireError(f"field {number} of {size} bytes goes beyond its message")
        yield number, kind, data[at : at + size]
        at += size


def numbers(kind: int, value: int | bytes) -> list[int]:
    """Return the numbers of a repeated field, packed or not."""
    if isinstance(value, int):
        return [value]
    if kind != LENGTH:
        return [int.from_bytes(value, "little")]
    values, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        values.append(number)
    return values


def signed(value: int) -> int:
    """Return a 64-bit two's complement number."""
    return value - (1 << 64) if value >> 63 else value


def zigzag(value: int) -> int:
    """Return a number of type sint."""
    return value >> 1 ^ -(value & 1)


def real(value: int | bytes) -> float:
    """Return a float or a double; no number where the bytes are neither."""
    if isinstance(value, int):
        return float(value)
    form = {8: "<d", 4: "<f"}.get(len(value))
    return float(struct.unpack(form, value)[0]) if form else math.nan


def string(value: int | bytes) -> str:
    """Return text; bytes that are no UTF-8 are replaced."""
    if isinstance(value, int):
        raise WireError("a number where text belongs")
    return value.decode("utf-8", "replace")
