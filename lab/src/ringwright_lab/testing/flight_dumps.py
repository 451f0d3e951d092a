"""Write Flight Recorder dumps as PyTorch does: pickles of protocol 2 with memoised text, or JSON. Nothing is pickled by class."""

from __future__ import annotations

import json
import struct
from typing import Any


def pickled(value: Any) -> bytes:
    """Return plain data (dict, list, pair, str, int, float, bool, None) as torch's pickler writes it."""
    out = bytearray(b"\x80\x02")
    _write(value, out, {})
    return bytes(out + b".")


def as_json(dump: dict[str, Any]) -> bytes:
    """Return a dump as the JSON form has it: counters as text, 0 for a time that was not seen, no empty entries, no stacks."""
    document = dict(dump)
    document["pg_status"] = {
        number: {name: str(value) for name, value in counters.items()} for number, counters in dump["pg_status"].items()
    }
    times = ("time_discovered_started_ns", "time_discovered_completed_ns")
    document["entries"] = [
        {key: (value or 0) if key in times else value for key, value in entry.items() if key != "frames"}
        for entry in dump["entries"]
    ]
    if not document["entries"]:
        del document["entries"]
    return json.dumps(document, separators=(",", ":")).encode()


def _write(value: Any, out: bytearray, memo: dict[str, int]) -> None:
    if isinstance(value, str):
        _text(value, out, memo)
    elif value is None or isinstance(value, bool):
        out += b"N" if value is None else b"\x88" if value else b"\x89"
    elif isinstance(value, int):
        _int(value, out)
    elif isinstance(value, float):
        out += b"G" + struct.pack(">d", value)
    elif isinstance(value, dict):
        out += b"}("
        for key, item in value.items():
            _write(key, out, memo)
            _write(item, out, memo)
        out += b"u"
    elif isinstance(value, list):
        out += b"]("
        for item in value:
            _write(item, out, memo)
        out += b"e"
    else:
        first, second = value
        _write(first, out, memo)
        _write(second, out, memo)
        out += b"\x86"


def _text(value: str, out: bytearray, memo: dict[str, int]) -> None:
    if value in memo:
        slot = memo[value]
        out += b"h" + bytes([slot]) if slot < 256 else b"j" + struct.pack("<I", slot)
        return
    raw = value.encode()
    slot = memo[value] = len(memo)
    out += b"X" + struct.pack("<I", len(raw)) + raw
    out += b"q" + bytes([slot]) if slot < 256 else b"r" + struct.pack("<I", slot)


def _int(value: int, out: bytearray) -> None:
    if 0 <= value < 256:
        out += b"K" + bytes([value])
    elif 0 <= value < 65536:
        out += b"M" + struct.pack("<H", value)
    elif -(1 << 31) <= value < 1 << 31:
        out += b"J" + struct.pack("<i", value)
    else:
        out += b"\x8a\x08" + struct.pack("<q", value)
