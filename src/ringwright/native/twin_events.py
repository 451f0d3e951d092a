"""The events of one line of XLA's profiler as columns: the twin of ``events.cpp``, which says the same to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

_MASK = 0xFFFFFFFFFFFFFFFF
NUMBERS, TEXTS = (3, 4, 7), (5, 6, 8)  # the fields of a value: as a number, and as bytes with a length
DOUBLE = 2


class XlaEventColumns(TypedDict):
    """One row an event. ``value`` and ``form`` hold a column per value asked for, row by row.

    ``form`` is the field that holds the value: 0 none, 2 a double by its bits, 3 unsigned, 4 signed, 7 the number of a name; of
    5, 6 and 8 (text, bytes, compressed text) ``value`` is where their length stands in the message. ``is_whole`` is false where
    the message breaks off or is none: the rows before are there.
    """

    name: np.ndarray
    start_ps: np.ndarray
    duration_ps: np.ndarray
    is_count: np.ndarray
    value: np.ndarray
    form: np.ndarray
    is_whole: bool


class _BrokenError(Exception):
    """The bytes are no message."""


def events(message: bytes, wanted: Sequence[int]) -> XlaEventColumns:
    """Return the events of a line; ``wanted`` are the numbers of the values to be kept."""
    import numpy as np

    heads: list[tuple[int, int, int, int]] = []
    values: list[int] = []
    forms: list[int] = []
    is_whole = True
    try:
        for number, kind, value, begin, end in _fields(message, 0, len(message)):
            del value
            if number == 4 and kind == 2:
                head, said = _event(message, begin, end)
                heads.append(head)
                for each in wanted:
                    form, held = said.get(each, (0, 0))
                    values.append(held)
                    forms.append(form)
    except _BrokenError:
        is_whole = False
    table = np.array(heads, np.int64).reshape(-1, 4)
    return {
        "name": table[:, 0],
        "start_ps": table[:, 1],
        "duration_ps": table[:, 2],
        "is_count": table[:, 3].astype(np.uint8),
        "value": np.array(values, np.int64),
        "form": np.array(forms, np.uint8),
        "is_whole": is_whole,
    }


def _event(message: bytes, at: int, end: int) -> tuple[tuple[int, int, int, int], dict[int, tuple[int, int]]]:
    name = start = duration = is_count = 0
    said: dict[int, tuple[int, int]] = {}
    for number, kind, value, begin, stop in _fields(message, at, end):
        if kind == 0:
            if number == 1:
                name = _signed(value)
            elif number == 2:
                start = _signed(value)
            elif number == 3:
                duration = _signed(value)
            elif number == 5:
                is_count = 1
        elif kind == 2 and number == 4:
            key, form, held = _stat(message, begin, stop)
            said[key] = form, held
    return (name, start, duration, is_count), said


def _stat(message: bytes, at: int, end: int) -> tuple[int, int, int]:
    key = form = held = 0
    for number, kind, value, _, _ in _fields(message, at, end):
        if number == 1 and kind == 0:
            key = value
        elif (number in NUMBERS and kind == 0) or (number == DOUBLE and kind == 1):
            form, held = number, _signed(value)
        elif number in TEXTS and kind == 2:
            form, held = number, value
    return key, form, held


def _fields(message: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield number, wire type, value (of bytes: where their length stands), begin and end."""
    while at < end:
        tag, at = _varint(message, at, end)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise _BrokenError
        value = at
        if kind == 0:
            value, at = _varint(message, at, end)
            yield number, kind, value, at, at
            continue
        if kind == 2:
            size, at = _varint(message, at, end)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise _BrokenError
        if size > end - at:
            raise _BrokenError
        if kind == 1:
            value = int.from_bytes(message[at : at + 8], "little")
        yield number, kind, value, at, at + size
        at += size


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    for byte in message[at : min(at + 10, end)]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7
    raise _BrokenError


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def text_at(message: bytes, at: int) -> bytes:
    """Return the bytes whose length stands at ``at``."""
    size, at = _varint(message, at, len(message))
    return message[at : at + size]
