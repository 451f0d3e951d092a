"""The messages of an XSpace: planes, lines, events and their values, read as far as somebody asks for them.

Field numbers are those of xplane.proto. Times of events are picoseconds from the start of their line, which is nanoseconds from
the start of the session or from 1970; the plane "Task Environment" says when the session began.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from ringwright.formats.sources.wire import LENGTH, VARINT, WireError, fields, signed, string, varint

StatValue = int | float | str | bytes
PS_PER_NS = 1000
MOST_PS = 1 << 62
MOST_TEXT_BYTES = 16 << 20
_EVENT = 0x22  # field 4 of a line, with a length: events are read by ringwright.native.events


@dataclass(slots=True)
class EventName:
    """What all events of one kind share: the name, the name to be shown, and values."""

    name: str = ""
    shown: str = ""
    stats: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class TraceLine:
    """A stream or a thread: its name, its start, and its message."""

    number: int
    name: str
    start_ns: int
    message: bytes


@dataclass
class Xplane:
    """A device or the host: its lines, and the names that its events and their values go by."""

    name: str = ""
    lines: list[TraceLine] = field(default_factory=list)
    names: dict[int, EventName] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    own: list[bytes] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)  # what of its lines cannot be read

    # branches: a case for each field of the message, by its number
    def stat(self, message: bytes) -> tuple[str, StatValue]:
        """Return name and value of one XStat."""
        name, value = "", 0  # type: tuple[str, StatValue]
        for number, _, held in fields(message):
            if number == 1 and isinstance(held, int):
                name = self.stat_names.get(held, "")
            elif number == 2 and isinstance(held, bytes) and len(held) == 8:
                value = float(struct.unpack("<d", held)[0])
            elif number == 3:
                value = held
            elif number == 4 and isinstance(held, int):
                value = signed(held)
            elif number == 5:
                value = string(held)
            elif number == 6:
                value = held
            elif number == 7 and isinstance(held, int):
                value = self.stat_names.get(held, "")
            elif number == 8 and isinstance(held, bytes):
                value = unpacked(held)
        return name, value

    def stats(self, messages: list[bytes]) -> dict[str, StatValue]:
        """Return the values of some XStats by their names; one that is damaged is left out."""
        told: dict[str, StatValue] = {}
        for message in messages:
            try:
                name, value = self.stat(message)
            except WireError as error:
                self.damage.append(f"a value: {error}")
                continue
            told[name] = value
        return told

    def own_stats(self) -> dict[str, StatValue]:
        """Return what the plane says of itself: releases, the vendor, the start of the session."""
        return self.stats(self.own)


def unpacked(held: bytes) -> str:
    """Return text that was compressed; nothing where it is damaged or longer than any text."""
    try:
        return zlib.decompressobj(47).decompress(held, MOST_TEXT_BYTES).decode("utf-8", "replace")
    except zlib.error:
        return ""


def planes(data: bytes) -> Iterator[Xplane | str | WireError]:
    """Yield every plane of an XSpace, the names of its hosts as text, and why a plane cannot be read.

    A file that is cut ends with the reason; the planes before it are whole.
    """
    parts = fields(data)
    while True:
        try:
            number, _, value = next(parts)
        except StopIteration:
            return
        except WireError as error:
            yield error
            return
        if isinstance(value, bytes) and number in (1, 4):
            try:
                yield xplane(value) if number == 1 else string(value)
            except (WireError, RecursionError) as error:
                yield WireError(f"a plane: {error}")


def xplane(message: bytes) -> Xplane:
    """Return one plane; its lines are not yet read."""
    made = Xplane()
    for number, _, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 2:
            made.name = string(value)
        elif number == 3:
            made.lines.append(_line(value))
        elif number == 4:
            key, entry = _entry(value)
            made.names[key] = _event_name(entry)
        elif number == 5:
            key, entry = _entry(value)
            made.stat_names[key] = next((string(held) for at, _, held in fields(entry) if at == 2), "")
        elif number == 6:
            made.own.append(value)
    return made


def _entry(message: bytes) -> tuple[int, bytes]:
    """Return key and value of an entry of a map."""
    key, entry = 0, b""
    for number, _, value in fields(message):
        if number == 1 and isinstance(value, int):
            key = value
        elif number == 2 and isinstance(value, bytes):
            entry = value
    return key, entry


def _event_name(message: bytes) -> EventName:
    made = EventName()
    for number, _, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 2:
            made.name = string(value)
        elif number == 4:
            made.shown = string(value)
        elif number == 5:
            made.stats.append(value)
    return made


def _behind(data: bytes, at: int) -> int:
    """Return where the field that begins at ``at`` ends."""
    tag, at = varint(data, at)
    kind = tag & 7
    if kind == VARINT:
        return varint(data, at)[1]
    if kind == LENGTH:
        size, at = varint(data, at)
        return at + size
    if kind in (1, 5):
        return at + (8 if kind == 1 else 4)
    raise WireError(f"wire type {kind} in a line")


def _line(message: bytes) -> TraceLine:
    """Return a line by the fields that stand before its events, as protobuf writes them."""
    made = TraceLine(0, "", 0, message)
    at = 0
    while at < len(message):
        tag = message[at]
        end = _behind(message, at)
        if tag in (0x08, 0x18):
            value = signed(varint(message, at + 1)[0])
            made.number, made.start_ns = (value, made.start_ns) if tag == 0x08 else (made.number, value)
        elif tag == 0x12:
            made.name = string(message[varint(message, at + 1)[1] : end])
        elif tag == _EVENT:
            break
        at = end
    return made
