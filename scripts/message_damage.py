"""Damage to messages of protobuf that keeps the lengths around it right, so that readers get past the first byte of it."""

from __future__ import annotations

import random

STRANGE = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
Part = tuple[int, int, bytes]  # field, wire type, and the bytes behind the tag (and length)


def message_damage(data: bytes, draw: random.Random) -> bytes:
    """Return a message with one to six fields changed, gone, doubled, moved or made up, at any depth."""
    for _ in range(draw.randint(1, 6)):
        data = _hurt(data, draw, 0)
    return data


def _hurt(data: bytes, draw: random.Random, depth: int) -> bytes:
    parts = _parts(data)
    if not parts:
        return data
    at = draw.randrange(len(parts))
    number, kind, value = parts[at]
    if kind == 2 and depth < 9 and draw.random() < 0.85 and _parts(value):
        parts[at] = number, kind, _hurt(value, draw, depth + 1)
        return _joined(parts)
    how = draw.randrange(7)
    if how == 0:
        del parts[at]
    elif how == 1:
        parts.insert(draw.randrange(len(parts) + 1), parts[at])
    elif how == 2:
        other = draw.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
    elif how == 3:
        parts[at] = draw.randrange(1, 100), kind, value
    elif how == 4 and kind == 2:
        parts[at] = number, kind, draw.randbytes(draw.choice((0, 1, 8, 300)))
    elif how == 5 and kind == 2:
        parts[at] = number, kind, value[: draw.randrange(len(value) + 1)] * draw.choice((1, 1, 2, 50))
    else:
        parts[at] = number, 0, _varint(draw.choice((*STRANGE, draw.randrange(100))))
    return _joined(parts)


def _parts(data: bytes) -> list[Part] | None:
    """Return the fields of a message, None for what is none."""
    parts: list[Part] = []
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        kind, start = tag & 7, at
        if tag >> 3 == 0 or kind not in (0, 1, 2, 5) or at > len(data):
            return None
        if kind == 0:
            _, at = _number(data, at)
        elif kind == 2:
            size, start = _number(data, at)
            at = start + size
        else:
            at += 8 if kind == 1 else 4
        if at > len(data):
            return None
        parts.append((tag >> 3, kind, data[start:at]))
    return parts


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7
    return 0, len(data) + 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _joined(parts: list[Part]) -> bytes:
    return b"".join(
        _varint(number << 3 | kind) + (_varint(len(value)) if kind == 2 else b"") + value
        for number, kind, value in parts
    )
