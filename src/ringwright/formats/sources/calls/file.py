"""One process's calls file: its lines decoded many at a time, and one by one where one of them is torn or strange.

Format: ``docs/reference/calls-file.md``. A line costs itself alone, whatever it holds.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import polars as pl

from ringwright.formats.sources.calls.lines import (
    DAMAGE,
    Begin,
    ContextLine,
    DiedLine,
    End,
    EndedLine,
    GroupLine,
    LostLine,
    RaisedLine,
    StepLine,
    decoder,
    integer,
    lenient,
    members_of,
    whole,
)
from ringwright.formats.sources.gate.inputs import chunks
from ringwright.ground.trace_tables import CHECKPOINT, OUTSIDE

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

FORMAT = "calls/1"
_MOST_WORD = 500
_MOST_EXAMPLES = 20
_HEAD_NUMBERS = ("pid", "rank", "world", "local_rank", "wall_ns", "clock_ns")


class RecordedGroup(NamedTuple):
    """A group as one process knows it; ``members`` are global ranks in order, empty where unknown."""

    name: str
    description: str
    backend: str
    size: int
    mine: int | None
    members: tuple[int, ...]


class Death(NamedTuple):
    """How a process ended out of order: ``how`` exception, exit or signal, and its ``code``; told in ``line``."""

    at_ns: int
    how: str
    code: int | None
    error: str
    words: str
    line: int

    @property
    def says(self) -> str:
        """What ended it, in words."""
        if self.how == "exception":
            return f"{self.error}: {self.words}" if self.words else self.error
        if self.how == "signal":
            return f"killed by signal {self.code}{_signal_name(self.code)}"
        by = f" by {self.error}" if self.error else ""
        return f"left with exit code {self.code}{by}" + (f": {self.words}" if self.words else "")

    @property
    def in_short(self) -> str:
        """The same without an exception's words."""
        return self.error if self.how == "exception" else self.says


def _signal_name(number: int | None) -> str:
    try:
        return f" ({signal.Signals(number or 0).name})"
    except ValueError:
        return ""


class EndedIteration(NamedTuple):
    """An iteration that ended, told in ``line``."""

    iteration: int
    begin_ns: int
    end_ns: int
    line: int


@dataclass
class CallsFile:
    """What one file holds. ``calls`` and ``ends`` are frames with the fields of :class:`Begin` and :class:`End`."""

    name: str
    head: dict[str, Any] = field(default_factory=dict)
    groups: dict[int, RecordedGroup] = field(default_factory=dict)
    contexts: dict[int, tuple[str | None, str | None, int | None]] = field(default_factory=dict)  # phase, layer, tokens
    calls: list[pl.DataFrame] = field(default_factory=list)  # and the number of the line
    ends: list[pl.DataFrame] = field(default_factory=list)
    rows: pl.DataFrame | None = None  # made of them and of the steps, once the whole file is there
    height: int = 0  # of the rows
    used: list[int] = field(default_factory=list)  # communicators of the rows
    first_ns: int | None = None  # when the first call began
    first_step_ns: int | None = None  # and the first step
    strange: list[int] = field(default_factory=list)  # lines of the first calls of groups that no line describes
    strangers: int = 0  # how many there are
    errors: list[tuple[int | None, int, str, int]] = field(default_factory=list)  # call, ns, text, line
    steps: list[EndedIteration] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)  # per reason, as last told
    ended: str = ""  # how, where the process said so
    died: Death | None = None  # where it ended out of order, as first told
    examples: list[tuple[int, str]] = field(default_factory=list)  # of lines that are none
    refused: int = 0
    lines: int = 0
    losses: list[tuple[str, int]] = field(default_factory=list)  # what could not be read: reason, byte

    @property
    def rank(self) -> int | None:
        """Global rank."""
        return whole(self.head.get("rank"), 1 << 31)

    @property
    def offset_ns(self) -> int:
        """What makes a time of the file one since 1970."""
        return int(self.head.get("wall_ns") or 0) - int(self.head.get("clock_ns") or 0)


def read_file(source: Source, progress: Callable[[int], None] | None = None) -> CallsFile:
    """Return what a calls file holds; lines that are none are counted in ``refused``."""
    calls_file = CallsFile(source.name)
    for chunk in chunks(source):
        if progress is not None:
            progress(len(chunk.data))
        take_lines(calls_file, chunk.data)
    _let_go(calls_file)
    return calls_file


def _let_go(calls_file: CallsFile) -> None:
    """Take the end of a process that only saved checkpoints for its rank as what it is: it serves until it is told to end."""
    died, phases = calls_file.died, {phase for phase, _, _ in calls_file.contexts.values()}
    only_saves = CHECKPOINT in phases and phases <= set(OUTSIDE) and not calls_file.steps
    is_idle = sum(map(len, calls_file.calls)) == sum(map(len, calls_file.ends))
    if died is not None and (died.how, died.code) == ("signal", signal.SIGTERM) and only_saves and is_idle:
        calls_file.died, calls_file.ended = None, "let go by its rank"


def take_lines(calls_file: CallsFile, data: bytes) -> None:
    """Take the next lines of a file."""
    _take(calls_file, _values(calls_file, data))


def _values(calls_file: CallsFile, data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number of the line, value) of each line that is one."""
    first = calls_file.lines + 1
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    calls_file.lines += lines
    try:
        values = decoder().decode_lines(data)
    except DAMAGE:
        values = []
    # Two values on a line, or an empty line, leave the numbers of lines unknown: then, as where one is damaged, one by one.
    if len(values) == lines:
        return enumerate(values, first)
    return _one_by_one(calls_file, data, first)


def _one_by_one(calls_file: CallsFile, data: bytes, first: int) -> Iterator[tuple[int, Any]]:
    decode = decoder().decode
    for number, text in enumerate(data.split(b"\n"), first):
        try:
            yield number, decode(text)
        except DAMAGE:
            value = lenient(text)
            if value is not None:
                yield number, value
            elif text.strip():
                calls_file.refused += 1
                if len(calls_file.examples) < _MOST_EXAMPLES:
                    calls_file.examples.append((number, text[:120].decode("utf-8", "replace")))


def _take(calls_file: CallsFile, values: Iterator[tuple[int, Any]]) -> None:
    """Put what lines hold where it belongs."""
    calls: list[Begin] = []
    lines: list[int] = []
    ends: list[End] = []
    for number, value in values:
        kind = type(value)
        if kind is Begin:
            calls.append(value)
            lines.append(number)
        elif kind is End:
            ends.append(value)
        elif not _rare(calls_file, value, number):
            calls_file.refused += 1
    if calls:
        calls_file.calls.append(_frame(Begin, calls, lines))
    if ends:
        calls_file.ends.append(_frame(End, ends))


def _rare(calls_file: CallsFile, value: Any, line: int) -> bool:
    """Take a line that is no call's; return False for one whose members are none."""
    match value:
        case GroupLine():
            members = members_of(value.ranks)
            if members is None:
                return False
            words = (value.name[:_MOST_WORD], value.description[:_MOST_WORD], value.backend[:_MOST_WORD].lower())
            calls_file.groups[value.number] = RecordedGroup(*words, max(1, value.size), whole(value.mine), members)
        case ContextLine():
            words_of = (value.phase and value.phase[:_MOST_WORD], value.layer and value.layer[:_MOST_WORD])
            calls_file.contexts[value.number] = (*words_of, whole(value.tokens))
        case StepLine():
            calls_file.steps.append(EndedIteration(value.iteration, value.begin_ns, value.end_ns, line))
        case RaisedLine():
            calls_file.errors.append((whole(value.call), value.at_ns, value.text[:_MOST_WORD], line))
        case LostLine():
            calls_file.lost[value.reason[:_MOST_WORD]] = max(
                value.records, calls_file.lost.get(value.reason[:_MOST_WORD], 0)
            )
        case EndedLine():
            calls_file.ended = value.how[:_MOST_WORD] or "?"
        case DiedLine():
            _died(calls_file, value, line)
        case _:
            _head(calls_file, value)
    return True


def _died(calls_file: CallsFile, value: DiedLine, line: int) -> None:
    """Take how a process ended: its own word comes first and stays, its parent's adds a code or a signal."""
    words = (value.error[:_MOST_WORD], value.words[:_MOST_WORD])
    told = Death(value.at_ns, value.how[:_MOST_WORD], integer(value.code), *words, line)
    if calls_file.died is None or (told.how == "signal" and calls_file.died.how == "exit"):
        calls_file.died = told


def _head(calls_file: CallsFile, value: dict[str, Any]) -> None:
    numbers = {name: whole(value[name]) for name in _HEAD_NUMBERS if name in value}
    words = {name[:_MOST_WORD]: str(text)[:1000] for name, text in value.items() if name not in numbers}
    if len(calls_file.head) < _MOST_WORD:
        calls_file.head.update({name: known for name, known in {**words, **numbers}.items() if known is not None})


def _frame(kind: type[msgspec.Struct], values: list[Any], lines: list[int] | None = None) -> pl.DataFrame:
    columns = {}
    rows = zip(*map(attrgetter(*kind.__struct_fields__), values), strict=True)
    for (name, of), column in zip(kind.__annotations__.items(), rows, strict=True):
        columns[name] = pl.Series(name, column, pl.String) if of == "str" else _integers(name, column)
    if lines is not None:
        columns["line"] = pl.Series("line", lines, pl.Int64)
    return pl.DataFrame(columns)


def _integers(name: str, column: Sequence[Any]) -> pl.Series:
    """Return a column of integers; what is none, or too large for one, becomes null."""
    try:
        return pl.Series(name, column, pl.Int64)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, [integer(value) for value in column], pl.Int64)
