"""A piece of ``traceEvents`` to events: as it stands, else repaired, else one by one; what fails is counted."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ringwright.formats.sources.kineto.records import BAD_JSON, Event, decode_events, decode_raws

CUTS_TRIED = 4
WINDOW_BYTES = 64 << 10  # mended at a time: what damage costs
EVENT_START = re.compile(rb',\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|args)"\s*:)')
_CUT = re.compile(rb"\}\s*,\s*(?=\{)")
_BEHIND = re.compile(r"trailing characters \(byte (\d+)\)")
_NOT_A_NUMBER = re.compile(rb"([:\[,]\s*)-?(?:nan|inf|infinity)\b(?:\([a-z]*\))?", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb'\\\\|\\(?!["\\/bfnrtu])')


@dataclass
class Reading:
    """What a file holds beside its events, and how the reading of them went."""

    name: str
    header: dict[str, Any] = field(default_factory=dict)
    events: int = 0  # elements of the array met so far, the refused ones included
    repaired: int = 0
    refused: int = 0
    example: str = ""
    example_at: int | None = None
    losses: list[str] = field(default_factory=list)
    found_array: bool = False


def cuts(data: bytes, at: int) -> list[int]:
    """Return where events end that seem to be followed by another: the last such places, the latest first."""
    size = 1 << 16
    while True:
        low = max(at, len(data) - size)
        places = [found.start() + 1 for found in _CUT.finditer(data, low)]
        if places or low == at:
            return places[: -CUTS_TRIED - 1 : -1]
        size *= 8


def whole(data: bytes, at: int, places: list[int]) -> tuple[list[Event], int, int | None] | None:
    """Return the events up to the first place that proves to be a cut, the place, and where the array closed, if it did."""
    for cut_at in places:
        events, end = attempt(data[at:cut_at])
        if events is not None:
            return events, cut_at, end
    return None


def decode(piece: bytes, reading: Reading, *, is_last: bool = False) -> tuple[list[Event], int | None, bytes]:
    """Return the events of a piece; when the array closes within it, how many bytes of the text returned it took."""
    events, end = attempt(piece)
    if events is not None:
        reading.events += len(events)
        return events, end, piece
    events = []
    at = 0
    while at < len(piece):
        more = EVENT_START.search(piece, at + WINDOW_BYTES)
        stop = more.start() if more else len(piece)
        text = piece[at:stop]
        decoded, end = attempt(text)
        if decoded is None and (mended := repair(text)) != text:
            decoded, end = attempt(mended)
            reading.repaired += decoded is not None
            text = text if decoded is None else mended
        if decoded is None:
            decoded, end, behind = _one_by_one(piece, at, stop, reading, is_last=is_last)
        else:
            reading.events += len(decoded)
            behind = stop + 1
        events += decoded
        if end is not None:
            return events, end, text + piece[stop:]
        at = behind
    return events, None, piece


def attempt(piece: bytes) -> tuple[list[Event] | None, int | None]:
    """Decode a piece as it stands: its events, and how many bytes belong to an array that closes within it."""
    try:
        return decode_events(b"[" + piece + b"]"), None
    except BAD_JSON as error:
        behind = _BEHIND.search(str(error))
    if behind is None:
        return None, None
    end = int(behind[1]) - 1  # without the bracket that was put before
    while end > 0 and piece[end - 1 : end] != b"]":
        end -= 1
    try:
        return decode_events(b"[" + piece[:end]), end
    except BAD_JSON:
        return None, None


def repair(piece: bytes) -> bytes:
    """Return the piece with the damage mended that profilers are known to do."""
    mended = _NOT_A_NUMBER.sub(rb"\1null", piece)
    mended = _BAD_ESCAPE.sub(lambda found: found[0] if len(found[0]) == 2 else rb"\\", mended)
    try:
        mended.decode()
    except UnicodeDecodeError:
        mended = mended.decode("utf-8", "replace").encode()
    return mended


def _one_by_one(
    piece: bytes, at: int, stop: int, reading: Reading, *, is_last: bool
) -> tuple[list[Event], int | None, int]:
    """Decode what can be decoded from ``at`` on, until an event would begin behind ``stop``.

    Joins up to four neighbours, should an event hold what looks like two. Returns the events, how many bytes from ``at``
    belong to an array that closes here, and where the next event begins.
    """
    bounds = (bound.start() for bound in EVENT_START.finditer(piece, at))
    ahead: deque[int] = deque()  # ends of the events that follow, as far as they were needed
    events: list[Event] = []
    first = at
    while at < stop:
        decoded, end = None, None
        for width in range(4):
            if width == len(ahead):
                ahead.append(next(bounds, len(piece)))
            decoded, end = _piece(piece[at : ahead[width]], reading)
            if decoded is not None or ahead[width] == len(piece):
                break
        taken = width if decoded is not None else 0
        for _ in range(taken):
            ahead.popleft()
        event_end = ahead.popleft()
        if decoded is not None:
            events += decoded
            reading.events += len(decoded)
            if end is not None:
                return events, at - first + end, event_end + 1
        elif not (is_last and event_end == len(piece)):  # a last event without its end is a cut, not a bad event
            events.append(_refuse(reading, piece[at:event_end]))
            reading.events += 1
        at = event_end + 1
    return events, None, at


def _piece(text: bytes, reading: Reading) -> tuple[list[Event] | None, int | None]:
    decoded, end = attempt(text)
    if decoded is not None:
        return decoded, end
    try:
        elements = decode_raws(b"[" + text + b"]")
    except BAD_JSON:
        mended = repair(text)
        if mended == text:
            return None, None
        decoded, _ = attempt(mended)
        reading.repaired += decoded is not None
        return decoded, None
    events = []
    for element in elements:
        decoded, _ = attempt(bytes(element))
        if decoded is None and (mended := repair(bytes(element))) != element:
            decoded, _ = attempt(mended)
            reading.repaired += decoded is not None
        events += [_refuse(reading, bytes(element))] if decoded is None else decoded
    return events, None


def _refuse(reading: Reading, text: bytes) -> Event:
    """Count a refused event; the empty one returned keeps the numbers of those behind it right."""
    reading.example = reading.example or text.strip()[:200].decode("utf-8", "replace")
    if reading.example_at is None:
        reading.example_at = reading.events
    reading.refused += 1
    return Event()
