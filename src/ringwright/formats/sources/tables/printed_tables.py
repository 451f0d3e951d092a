"""Tables of benchmarks that print a title, a line of column names and rows of numbers below it, one size a row.

A title begins a benchmark, a line of column names its table; other lines may say something of it. What a benchmark is, and
which of its columns is the time, says each tool's own file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ringwright.bounds.laws.tables import Side
from ringwright.formats.sources.launchers import plain
from ringwright.formats.sources.tables.launch_line import launched
from ringwright.formats.sources.tables.nccl_tests_table import NcclTestsTable, SizeRow, TableRefusal, lawful, op_in

_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,2})?")
_LAST = re.compile(r"\s(\d{1,9})$")
_WORDS = {"n/a", "pass", "fail", "-", "passed", "failed"}  # that stand among the numbers of a row
_TOTAL = (
    "all-gather",
    "gather",
    "scatter",
    "all-to-all",
)  # of which MPI's tools print what one rank gives to one, or to all
_GUESSES = (("barrier", "barrier"), ("bcast", "broadcast"))


@dataclass(frozen=True, slots=True)
class NumberRow:
    """The words of one row by column, and its line."""

    words: dict[str, str]
    line: int
    behind: int | None = None  # a whole number behind the last column

    def number(self, *columns: str) -> float | None:
        """Return the number in the first of some columns that has one above 0; None where none has."""
        for column in columns:
            if _NUMBER.fullmatch(self.words.get(column, "")) and (value := float(self.words[column])) > 0:
                return value
        return None

    @property
    def is_wrong(self) -> bool:
        """Whether the tool checked what was computed and says that it is wrong."""
        return any(word.lower() in ("fail", "failed") for word in self.words.values())

    def others(self) -> tuple[tuple[str, float], ...]:
        """Return the numbers of all columns but the first, in their own units."""
        told = ((column, word) for column, word in list(self.words.items())[1:])
        return tuple((column, float(word)) for column, word in told if _NUMBER.fullmatch(word))

    def size(self, column: str) -> int | None:
        """Return the bytes in a column; 0 where the table has none there, as that of a barrier."""
        if self.words.get(column, "N/A") == "N/A":
            return 0
        return int(self.words[column]) if self.words[column].isdecimal() else None


@dataclass
class TitledRows:
    """What was read below one title; ``heading`` is the title, or the file's name where there is none."""

    title: str = ""
    heading: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    line: int = 0
    behind: int | None = None  # a whole number behind the column names
    rows: list[NumberRow] = field(default_factory=list)
    refused: list[TableRefusal] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether a row was read, be it a refused one."""
        return bool(self.rows or self.refused)


@dataclass(frozen=True)
class TableTool:
    """How one tool prints: its titles, its column names, what other lines say, and what a benchmark is as a table."""

    title: re.Pattern[str]  # whose group ``title`` says which benchmark
    columns: Callable[[str], tuple[str, ...]]  # of a line; empty where it names none
    facts: tuple[tuple[str, re.Pattern[str]], ...]  # name -> its first group is the value
    table: Callable[[TitledRows], TimedTable]
    more: int = 0  # words that a row may have beyond its columns


@dataclass(frozen=True)
class TimedTable:
    """What a tool's file makes of a benchmark: its operation, how many ranks, and each row's bytes as printed and seconds."""

    op: str
    ranks: int
    timed: Callable[[NumberRow], tuple[int | None, float | None]]
    is_per_rank: bool = False  # bytes are those of one rank, or of a pair of ranks
    rate: str = ""  # the column that holds the bus bandwidth in GB/s
    facts: dict[str, str] = field(default_factory=dict)


def timed_by(
    size: str, times: Sequence[str], rates: Mapping[str, float], streams: int
) -> Callable[[NumberRow], tuple[int | None, float | None]]:
    """Return what reads bytes and seconds of a row by its columns.

    Parameters
    ----------
    size, times
        The column of bytes, and those of microseconds, the surest first.
    rates
        Columns of rates with their unit in B/s, which tell the time where none is printed.
    streams
        Of messages that go at once, which a rate counts together.
    """

    def timed(row: NumberRow) -> tuple[int | None, float | None]:
        size_bytes, time_us = row.size(size), row.number(*times)
        if time_us is not None:
            return size_bytes, time_us * 1e-6
        told = ((row.number(column), unit) for column, unit in rates.items())
        rate = next((number * unit for number, unit in told if number is not None), None)
        return size_bytes, size_bytes * streams / rate if rate is not None and size_bytes else None

    return timed


def op_of(title: str) -> str:
    """Return the collective that the title of a benchmark names, "" for none."""
    lower = title.lower()
    if any(word in lower for word in ("neighbo", "reduce_local", "put", "accumulate", "_op")):
        return ""
    return next((op for word, op in _GUESSES if word in lower), "") or op_in(title.replace("Exchange", ""))


def is_per_rank(op: str) -> bool:
    """Say whether MPI's tools print what one rank, or a pair of ranks, has of the whole."""
    return op in _TOTAL


def column_names(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    """Return the column names of a line that holds nothing else, "#" apart; none for any other line."""
    names = tuple(match.group().strip() for match in pattern.finditer(line))
    rest = pattern.sub("", line).strip(" \t#")
    return names if names and (not rest or (names != ("Size",) and rest == str(_behind(line)))) else ()


def _behind(line: str) -> int | None:
    """Return a whole number that ends a line, as where pages number the lines of what is pasted."""
    return int(match[1]) if (match := _LAST.search(line)) else None


def printed_tables(tool: TableTool, lines: Iterable[str], name: str) -> Iterator[NcclTestsTable]:
    """Yield the tables in the text of one output, in its order; where there is none, the last title as one without a row."""
    told: dict[str, str] = {}  # by the line that started the ranks
    state, is_first = TitledRows(heading=name), True
    for number, raw in enumerate(lines, 1):
        line = " ".join(plain(raw).split())  # blanks are tabs, or more of them, in what was pasted
        if (run := launched(line)) is not None:
            told = run
        title = tool.title.search(line)
        columns = tool.columns(line)
        if title or _ends(state, line, columns):
            is_first &= not state.holds
            yield from _closed(tool, state, name) if state.holds else ()
            state = replace(state, facts=dict(state.facts), columns=(), rows=[], refused=[])
        if title:
            state = TitledRows(title["title"].strip(), title["title"], told)
            told = {}  # a launch starts one program
        _take(tool, state, line, number, () if not columns and title else columns or None)
    if state.holds or (is_first and state.title):
        yield from _closed(tool, state, name)


def _ends(state: TitledRows, line: str, columns: tuple[str, ...]) -> bool:
    """Whether a line ends the rows of a table: a new header, or what may be another tool's."""
    return bool(state.rows) and (bool(columns) or line.startswith(("#", "--")))


def _take(tool: TableTool, state: TitledRows, line: str, number: int, columns: tuple[str, ...] | None) -> None:
    """Take a line of a table: its header, a row (``columns`` None), a fact; of a title (no columns) its facts alone."""
    if columns:
        state.columns, state.line, state.behind = columns, number, _behind(line)
    elif columns is None and state.columns:
        _row(state, line, number, tool.more)
    for key, pattern in tool.facts:
        if match := pattern.search(line):
            state.facts[key] = match[1].strip()


def _row(state: TitledRows, line: str, number: int, more: int) -> None:
    """Take a line of numbers; one of as many words as no row has is refused, any other line is passed over."""
    words = line.split()
    if not words or not all(_NUMBER.fullmatch(word) or word.lower() in _WORDS for word in words):
        return
    if len(state.columns) <= len(words) <= len(state.columns) + more:
        state.rows.append(NumberRow(dict(zip(state.columns, words, strict=False)), number))
    elif len(words) == len(state.columns) + more + 1 and (behind := _behind(line)) is not None:
        state.rows.append(NumberRow(dict(zip(state.columns, words, strict=False)), number, behind))
    elif len(words) * 2 > len(state.columns):
        state.refused.append(TableRefusal("columns", number, line[:200]))


def _numbered(state: TitledRows) -> None:
    """Refuse the rows with a number more than columns, unless these numbers count up from line to line."""
    counts = [row.behind for row in state.rows if row.behind is not None]
    steps = {after - before for before, after in pairwise(counts)}
    if state.behind is not None and counts:
        steps.add(1 if counts[0] > state.behind else 0)
    if counts and steps != {1}:
        left = [row for row in state.rows if row.behind is not None]
        state.refused += [TableRefusal("columns", row.line, " ".join(row.words.values())) for row in left]
        state.rows = [row for row in state.rows if row.behind is None]


def _closed(tool: TableTool, state: TitledRows, name: str) -> Iterator[NcclTestsTable]:
    _numbered(state)
    table = tool.table(state)
    told = {key: value for key, value in state.facts.items() if key not in ("ranks", "nodes", "ranks printed")}
    facts = ({"test": state.title} if state.title else {}) | told | table.facts
    if table.is_per_rank and not table.ranks:
        facts["size"] = "as printed: of one rank, the whole is not told"
    # of those that a launch tells the nodes some ranks may only wait
    nodes = int(state.facts.get("nodes", "0")) if state.facts.get("ranks") == str(table.ranks) else 0
    yield lawful(
        NcclTestsTable(
            table.op,
            _measured(state, table),
            f"{name}: {state.title}" if state.title else name,
            table.ranks,
            nodes,
            facts=facts,
            line=state.line,
            is_op_told=bool(state.title),
            refused=tuple(state.refused),
        )
    )


def _measured(state: TitledRows, table: TimedTable) -> tuple[SizeRow, ...]:
    """Return the rows with the bytes of the whole; one without bytes or a time is refused."""
    times = table.ranks if table.is_per_rank and table.ranks else 1
    rows: list[SizeRow] = []
    for row in state.rows:
        size, time_s = table.timed(row)
        if size is None or time_s is None or size * times >= 1 << 62:
            state.refused.append(TableRefusal("time", row.line, " ".join(row.words.values())[:200]))
            continue
        # a result that a tool itself calls wrong is one to the law of results
        sides = (Side(f"{time_s * 1e6:.12g}", wrong="1"),) if row.is_wrong else ()
        bus = row.number(table.rate)
        rows.append(SizeRow(size * times, time_s, None, None, bus, line=row.line, sides=sides, others=row.others()))
    return tuple(rows)
