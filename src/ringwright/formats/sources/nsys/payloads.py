"""Structures that programs attach to NVTX ranges, as an export holds them: a table of schemas and raw bytes with each event.

The bytes begin with four numbers of 64 bits: domain, schema, bytes of the payload, bytes of all (or where the payload begins).
The numbers of types are those of ``nvToolsExtPayload.h``; NCCL's entries are named, so that releases differ in names alone.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.reader_rows import whole_number

if TYPE_CHECKING:
    from ringwright.formats.sources.nsys.database import Database

_HEADER = struct.Struct("<QQQQ")
# type -> how the number is laid out: C's integers of 64-bit systems, integers by their size, size_t, addresses
_LAYOUTS = {
    1: "b",
    2: "B",
    3: "h",
    4: "H",
    5: "i",
    6: "I",
    7: "q",
    8: "Q",
    9: "q",
    10: "Q",
    11: "b",
    12: "B",
    13: "h",
    14: "H",
    15: "i",
    16: "I",
    17: "q",
    18: "Q",
    19: "f",
    20: "d",
    22: "Q",
    23: "Q",
}
_ENUM = "i"  # of types that name an enumeration of the program
_FIRST_OWN = 1 << 10
_MOST_ENTRIES = 100_000
_MASK = (1 << 64) - 1
Key = tuple[int, int]  # domain, schema


@dataclass(frozen=True, slots=True)
class _Entry:
    """One member of a structure."""

    name: str
    kind: int
    offset: int


class Payloads:
    """The schemas of one export, and what an event's bytes say by them."""

    def __init__(self, database: Database) -> None:
        self.schemas: dict[Key, list[_Entry]] = defaultdict(list)
        self.enums: dict[Key, dict[int, str]] = defaultdict(dict)
        wanted = ("domainId", "schemaId", "type", "name", "offset")
        for count, row in enumerate(database.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", wanted, order="idx")):
            domain, schema, kind, offset = (whole_number(value) for value in (*row[:3], row[4] or 0))
            if count < _MOST_ENTRIES and None not in (domain, schema, kind, offset) and isinstance(row[3], str):
                entry = _Entry(row[3][:200], kind or 0, offset or 0)
                self.schemas[(domain or 0) & _MASK, (schema or 0) & _MASK].append(entry)
        names = ("domainId", "schemaId", "name", "value")
        for count, (domain, schema, name, value) in enumerate(database.rows("NVTX_PAYLOAD_ENUM_ENTRIES", names)):
            if count < _MOST_ENTRIES and isinstance(domain, int) and isinstance(schema, int) and isinstance(value, int):
                self.enums[domain & _MASK, schema & _MASK][value] = str(name)[:200]

    def fields(self, data: Any) -> dict[str, Any]:
        """Return name -> value of an event's bytes (or their hexadecimal form); nothing where no schema fits them."""
        held = _bytes(data)
        if len(held) < _HEADER.size:
            return {}
        domain, schema, size, _ = _HEADER.unpack_from(held)
        body = held[_HEADER.size : _HEADER.size + size] if size < len(held) else b""
        return {
            entry.name: value
            for entry in self._entries(domain, schema)
            if (value := self._value(domain, entry, body)) is not None
        }

    def _entries(self, domain: int, schema: int) -> list[_Entry]:
        """Return the entries of a schema, in its own domain or in the only one that has it."""
        if (domain, schema) in self.schemas:
            return self.schemas[domain, schema]
        alike = [entries for (_, number), entries in self.schemas.items() if number == schema]
        return alike[0] if len(alike) == 1 else []

    def _value(self, domain: int, entry: _Entry, body: bytes) -> Any:
        layout = _LAYOUTS.get(entry.kind) or (_ENUM if entry.kind >= _FIRST_OWN else "")
        if not layout or not 0 <= entry.offset <= len(body) - struct.calcsize(f"<{layout}"):
            return None
        (value,) = struct.unpack_from(f"<{layout}", body, entry.offset)
        return self.enums.get((domain, entry.kind & _MASK), {}).get(value, value) if entry.kind >= _FIRST_OWN else value


def _bytes(data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    try:
        return bytes.fromhex(data) if isinstance(data, str) else b""
    except ValueError:
        return b""
