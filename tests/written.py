"""Small files of the formats that other programs write, for tests of their readers."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.source import Source


def varint(value: int) -> bytes:
    """Return an unsigned number in base 128."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """Return a field of wire type varint."""
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes | str) -> bytes:
    """Return a field of wire type length."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def double(field: int, value: float) -> bytes:
    """Return a field of eight bytes."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def framed(*messages: bytes) -> bytes:
    """Return messages behind their lengths."""
    return b"".join(varint(len(message)) + message for message in messages)


def attribute(name: str, field: int, value: int | str | bytes) -> bytes:
    """Return a node's attribute (field 10)."""
    held = number(field, value) if isinstance(value, int) else block(field, value)
    return block(10, block(1, name) + held)


def metadata(version: str = "0.0.4") -> bytes:
    """Return the first message of an execution trace."""
    return block(1, version)


def tar_of(files: dict[str, bytes]) -> bytes:
    """Return a tar of some files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def sources(folder: Path, files: dict[str, bytes]) -> list[Source]:
    """Write some files and return them as sources, in the order given."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return find([str(folder / name) for name in files])
