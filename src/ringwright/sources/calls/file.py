"""One process's calls file: its lines checked one by one, so that a torn or strange one costs itself alone.

Format: ``docs/calls-file.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ringwright.sources.inputs import chunks

if TYPE_CHECKING:
    from ringwright.sources.source import Source

FORMAT = "calls/1"
_MOST_RANKS = 1 << 20
_I63 = 1 << 62
_HEAD_NUMBERS = ("pid", "rank", "world", "local_rank", "wall_ns", "clock_ns")


class Group(NamedTuple):
    """A group as one process knows it; ``members`` are global ranks in order, empty where unknown."""

    name: str
    description: str
    backend: str
    size: int
    mine: int | None
    members: tuple[int, ...]


class Call(NamedTuple):
    """One call's first line."""

    number: int
    at_ns: int
    group: int
    op: str
    datatype: str
    count: int | None
    sent: int | None
    received: int | None
    root: int | None
    peer: int | None
    reduction: str
    context: int | None
    is_async: int | None
    thread: int | None
    iteration: int
    line: int


@dataclass
class Process:
    """What one file holds. ``steps`` are (iteration, begin, end) in ns, ``errors`` (call or None, ns, text, line)."""

    name: str
    head: dict[str, Any] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    contexts: dict[int, tuple[str | None, str | None, int | None]] = field(default_factory=dict)  # phase, layer, tokens
    calls: list[Call] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    errors: list[tuple[int | None, int, str, int]] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    ended: str = ""  # how, where the process said so
    refused: list[tuple[int, str]] = field(default_factory=list)
    lines: int = 0

    @property
    def rank(self) -> int | None:
        """Global rank."""
        return _number(self.head.get("rank"))

    @property
    def offset_ns(self) -> int:
        """What makes a time of the file one since 1970."""
        return int(self.head.get("wall_ns") or 0) - int(self.head.get("clock_ns") or 0)


def read_file(source: Source, progress: Callable[[int], None] | None = None) -> Process:
    """Return what a calls file holds; lines that are none are listed in ``refused``."""
    import msgspec

    found = Process(source.name)
    decode = msgspec.json.Decoder().decode
    takers = _takers(found)
    number = 0
    for chunk in chunks(source):
        if progress is not None:
            progress(len(chunk.data))
        for text in chunk.data.split(b"\n"):
            if not text.strip():
                number += bool(text)
                continue
            number += 1
            try:
                value = decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                value = None
            if not _take(found, takers, value, number):
                found.refused.append((number, text[:120].decode("utf-8", "replace")))
    found.lines = number
    return found


def _take(found: Process, takers: dict[str, Callable[[list[Any], int], bool]], value: Any, line: int) -> bool:
    if isinstance(value, dict):
        numbers = {name: _number(value[name]) for name in _HEAD_NUMBERS if name in value}
        words = {name: str(text)[:1000] for name, text in value.items() if name not in numbers}
        found.head.update({name: known for name, known in {**words, **numbers}.items() if known is not None})
        return True
    if not isinstance(value, list) or not value or not isinstance(value[0], str) or value[0] not in takers:
        return False
    try:
        return takers[value[0]](value, line)
    except (IndexError, TypeError, ValueError):
        return False


def _takers(found: Process) -> dict[str, Callable[[list[Any], int], bool]]:
    """Return what takes a line of each kind; a taker returns False, or raises, for a line that is not as it must be."""

    def begin(row: list[Any], line: int) -> bool:
        number, at_ns, group = _whole(row[1]), _whole(row[2]), _whole(row[3])
        numbers = [_number(value) for value in row[6:11]]
        rest = [_number(value) for value in row[12:15]]
        call = Call(
            number, at_ns, group, _word(row[4]), _word(row[5]), *numbers, _word(row[11]), *rest, len(found.steps), line
        )
        found.calls.append(call)
        return True

    def end(row: list[Any], _line: int) -> bool:
        found.ends[_whole(row[1])] = _whole(row[2])
        return True

    def group(row: list[Any], _line: int) -> bool:
        words = (_word(row[2]), _word(row[3]), _word(row[4]))
        found.groups[_whole(row[1])] = Group(*words, max(1, _whole(row[5])), _number(row[6]), _members(row[7]))
        return True

    def context(row: list[Any], _line: int) -> bool:
        found.contexts[_whole(row[1])] = (row[3] and _word(row[3]), row[4] and _word(row[4]), _number(row[5]))
        return True

    def step(row: list[Any], _line: int) -> bool:
        found.steps.append((_whole(row[1]), _whole(row[2]), _whole(row[3])))
        return True

    def raised(row: list[Any], line: int) -> bool:
        found.errors.append((_number(row[1]), _whole(row[2]), _word(row[3]), line))
        return True

    def lost(row: list[Any], _line: int) -> bool:
        found.lost[_word(row[1])] += _whole(row[2])
        return True

    def ended(row: list[Any], _line: int) -> bool:
        found.ended = _word(row[1])
        return True

    return {"b": begin, "e": end, "g": group, "c": context, "s": step, "r": raised, "d": lost, "x": ended}


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -_I63 < value < _I63 else None


def _whole(value: Any) -> int:
    known = _number(value)
    if known is None or known < 0:
        raise ValueError(value)
    return known


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value[:500]


def _members(value: Any) -> tuple[int, ...]:
    """Return the ranks of a group: a list, or first, step and count of evenly spaced ones."""
    if isinstance(value, dict):
        first, step, count = (_whole(value.get(name)) for name in ("first", "step", "count"))
        if count > _MOST_RANKS or first + step * count > 1 << 31:
            raise ValueError(value)
        return tuple(range(first, first + step * count, max(1, step)))[:count]
    if value is None:
        return ()
    found = tuple(_whole(rank) for rank in value)
    if len(found) > _MOST_RANKS or (found and max(found) >= 1 << 31):
        raise ValueError(len(found))
    return found
