"""The lines of a calls file: each kind with its facts, and what is made of a line whose facts are not of their type.

Format: ``docs/reference/calls-file.md``.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import msgspec

DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MOST_RANKS = 1 << 20
_I63 = 1 << 62

_Whole = Annotated[int, msgspec.Meta(ge=0, le=_I63)]
_Maybe = int | None


class Begin(msgspec.Struct, array_like=True, tag="b", gc=False):
    """A call's first line, as it stands. ``turn``: which collective of its group it is, where the writer counts."""

    number: _Whole
    at_ns: _Whole
    group: _Whole
    op: str
    datatype: str
    count: _Maybe
    sent: _Maybe
    received: _Maybe
    root: _Maybe
    peer: _Maybe
    reduction: str
    context: _Maybe
    is_async: _Maybe
    thread: _Maybe
    turn: _Maybe = None


class End(msgspec.Struct, array_like=True, tag="e", gc=False):
    """A call has completed; a receive with the bytes that came and their sender, where its begin did not know them."""

    number: _Whole
    end_ns: _Whole
    got: _Maybe = None
    sender: _Maybe = None


class GroupLine(msgspec.Struct, array_like=True, tag="g"):
    """A process group; ``mine``: this rank's place in it."""

    number: _Whole
    name: str
    description: str
    backend: str
    size: _Whole
    mine: _Maybe
    ranks: Any = None


class ContextLine(msgspec.Struct, array_like=True, tag="c"):
    """What the model does, by number."""

    number: _Whole
    iteration: Any
    phase: str | None
    layer: str | None
    tokens: _Maybe = None


class StepLine(msgspec.Struct, array_like=True, tag="s"):
    """An iteration that ended."""

    iteration: _Whole
    begin_ns: _Whole
    end_ns: _Whole


class RaisedLine(msgspec.Struct, array_like=True, tag="r"):
    """A call that failed."""

    call: _Maybe
    at_ns: _Whole
    text: str


class LostLine(msgspec.Struct, array_like=True, tag="d"):
    """Records that are not in the file."""

    reason: str
    records: _Whole


class EndedLine(msgspec.Struct, array_like=True, tag="x"):
    """The process ended in order."""

    how: str
    at_ns: Any = None
    code: Any = None


class DiedLine(msgspec.Struct, array_like=True, tag="y"):
    """How the process ended, where that is out of order: an exception, an exit code, a signal; by itself or by its parent."""

    at_ns: _Whole
    how: str
    code: Any = None
    error: str = ""
    words: str = ""


_Line = Begin | End | GroupLine | ContextLine | StepLine | RaisedLine | LostLine | EndedLine | DiedLine | dict[str, Any]


@cache
def decoder() -> msgspec.json.Decoder[Any]:
    """Return what decodes a line, or many."""
    return msgspec.json.Decoder(_Line)


def lenient(text: bytes) -> Any:
    """Return the value of a line whose facts are not all of their type: a call's number, time and group are enough."""
    try:
        row = msgspec.json.decode(text)
    except DAMAGE:
        return None
    if not isinstance(row, list) or len(row) < 12 or row[0] != "b":
        return None
    row += [None] * (16 - len(row))
    numbers = [whole(value) for value in row[1:4]]
    if None in numbers or not isinstance(row[4], str):
        return None
    words = [value if isinstance(value, str) else "" for value in (row[5], row[11])]
    return Begin(*numbers, row[4], words[0], *row[6:11], words[1], *row[12:16])  # type: ignore[call-arg, arg-type]


def integer(value: Any) -> int | None:
    """Return an integer that fits a column; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -_I63 < value < _I63 else None


def whole(value: Any, below: int = _I63) -> int | None:
    """Return an integer from 0 to ``below``, without it; else None."""
    known = integer(value)
    return known if known is not None and 0 <= known < below else None


def members_of(value: Any) -> tuple[int, ...] | None:
    """Return the ranks of a group: a list, or first, step and count of evenly spaced ones; None for what is neither."""
    if value is None:
        return ()
    if isinstance(value, dict):
        first, step, count = (whole(value.get(name), 1 << 31) for name in ("first", "step", "count"))
        if (
            first is None
            or step is None
            or count is None
            or not step
            or count > _MOST_RANKS
            or first + step * count > 1 << 31
        ):
            return None
        return tuple(range(first, first + step * count, step))
    if not isinstance(value, list) or len(value) > _MOST_RANKS:
        return None
    members = tuple(rank for rank in value if whole(rank, 1 << 31) is not None)
    return members if len(members) == len(value) else None
