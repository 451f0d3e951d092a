"""Tables of nccl-tests and rccl-tests, as text; ``nccl_tests_shapes`` reads the two other shapes in which they travel.

Every header variant from 2.0 on (with and without redop, root, in-place and error columns), several tables in one file, lines of
other programs in between, and what launchers and container runtimes put before a line.

Units: bytes as in the size column (for all-gather, reduce-scatter and all-to-all the total over ranks), seconds of the
out-of-place and in-place runs. Source: ``src/common.cu`` of NVIDIA/nccl-tests.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringwright.bounds.laws.tables import Side
from ringwright.formats.sources.detect import PEEK_BYTES, detect
from ringwright.formats.sources.gate.inputs import chunks, find
from ringwright.formats.sources.gate.wrappers import unwrapped
from ringwright.formats.sources.kinds import kinds
from ringwright.formats.sources.launchers import plain
from ringwright.formats.sources.source import Source
from ringwright.formats.sources.tables.nccl_columns import (
    USUAL,
    HeaderWord,
    apart,
    header,
    is_bare_row,
    is_number,
    place,
)
from ringwright.formats.sources.tables.nccl_tests_shapes import csv_tables, json_lines
from ringwright.formats.sources.tables.nccl_tests_table import OPS, NcclTestsTable, SizeRow, TableRefusal, lawful, op_in
from ringwright.ground.errors import InputError

_PROGRAM = re.compile(r"\b(" + "|".join(sorted(OPS, key=len, reverse=True)) + r")(?:_perf|\.exe)\b")
_DEVICE = re.compile(r"(?:^\s*|#\s*)Rank\s+(\d+)\s.{0,120}?\bon\s+(\S.{0,254}?)\s+device\s+\d+\s+\[[^]]*\]\s*(.*)")
_VERSION = re.compile(r"\b(?:NCCL|RCCL) version[ :]+(\d+\.\d+\.\d+)|nccl-library=(\d+)")
_LAST = re.compile(r"#\s*(?:Avg bus bandwidth|Out of bounds|Collective test concluded|$)")
LONGEST_NUMBER = 18  # digits of a size
_CALLS = re.compile(r"\bwarm-?up iters:? ?(\d{1,9}),? iters:? ?(\d{1,9})\b")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([\d.eE+-]+)")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,18})\s+FAILED")
_HEADING = re.compile(
    r"\b(all[ _-]?(?:reduce|gather)|reduce[ _-]?scatter|all[ _-]?to[ _-]?all|broadcast|reduce|gather|scatter|send[ _-]?recv)\b",
    re.IGNORECASE,
)
LONGEST_HEADING = 60  # letters of a line above a table that names its operation


_Setting = tuple[str, str, str]  # type, reduction, root


@dataclass
class _Open:
    """What has been read since the end of the table before."""

    op: str = ""
    heading: str = ""  # operation that a line of plain text names
    release: str = ""
    calls: tuple[str, str] | None = None  # of each size: those before the timed ones, and those
    gpu: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    columns: list[HeaderWord] = field(default_factory=list)
    line: int = 0
    rows: dict[_Setting, list[SizeRow]] = field(default_factory=dict)
    refused: list[TableRefusal] = field(default_factory=list)
    out_of_bounds: str = ""  # values, where the closing lines say so
    average: str = ""  # bus bandwidth in GB/s, as the closing line prints it
    averages: int = 0  # closing lines read
    firsts: list[str] = field(default_factory=list)  # lines that name a rank 0: each process that is alone has its own

    @property
    def is_ended(self) -> bool:
        """Whether the closing line was read, of each of several processes."""
        return self.averages >= max(len(self.firsts), 1)

    @property
    def holds(self) -> bool:
        """Whether a row was read, be it a refused one."""
        return bool(self.rows or self.refused)


def read_tables(paths: str | Path | list[str]) -> list[NcclTestsTable]:
    """Return every table of some files, in the order of the files; raise InputError where there is none."""
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    tables = [table for name in names for table in every_table(name) if table.rows]
    if not tables:
        raise no_table(names)
    return tables


def no_table(names: Sequence[str]) -> InputError:
    """Return the error of files that hold no table of nccl-tests; one of another kind is called what it is."""
    given = [source for name in names[:3] if Path(name).is_file() for source in find([name])]
    of_others = [(each.name, kind) for each in given for kind in detect(each)[:1] if kind != "bench"]
    if not of_others:
        remedy = "give the output of all_reduce_perf and its kin, a header and at least one row of numbers"
        return InputError("no nccl-tests table was found", where=", ".join(names[:3]), remedy=remedy)
    name, kind = of_others[0]
    return InputError(
        f"no nccl-tests table, but another kind of recording: {kinds()[kind].what}; only times of NCCL's own calls, by size, "
        "can be held against what NCCL chooses",
        where=name,
        remedy=f"ringwright summary {name}",
    )


def every_table(name: str) -> Iterator[NcclTestsTable]:
    """Yield every table of a file, those without a row that could be used too; InputError for a file that holds none."""
    path = Path(name)
    if path.suffix == ".csv" and path.is_file():
        yield from csv_tables(path)
        return
    sources = [unwrapped(each, each.head(PEEK_BYTES)) for each in find([name])]
    for source in sources:
        title, lines = Path(source.name).name, _lines(source)
        first = next((line for line in lines if line.strip()), "")
        lines = itertools.chain([first], lines)
        try:
            yield from list(json_lines(lines, title) if first.lstrip().startswith("{") else _text(lines, title))
        except InputError:
            if len(sources) == 1:  # in a folder other files may lie beside the tables
                raise


def _lines(source: Source) -> Iterator[str]:
    for chunk in chunks(source):
        yield from chunk.data.decode("utf-8", "replace").splitlines()


def _text(lines: Iterable[str], name: str) -> Iterator[NcclTestsTable]:
    """Yield the tables of one output; its closing line, a new header or program closes a table, and what was said with it.

    Where there is none, ranks that are listed are yielded as a table without a row.
    """
    state, is_first = _Open(), True
    for number, raw in enumerate(lines, 1):
        for line in apart(plain(raw.rstrip("\r\n"))):
            columns = header(line)
            begins = columns or _PROGRAM.search(line) or _DEVICE.search(line)
            if state.holds and (state.is_ended or begins) and not _LAST.search(line):
                yield from _closed(state, name)
                state, is_first = _Open(), False
            _take(state, line, number, columns)
    if state.holds or (is_first and state.hosts):
        yield from _closed(state, name)


def _take(state: _Open, line: str, number: int, columns: list[HeaderWord]) -> None:
    """Take a line of a table, or what stands around it; ``columns`` where it is a header."""
    _note(state, line)
    if columns:
        state.columns, state.line = columns, number
    elif state.columns or is_bare_row(line):
        state.columns = state.columns or USUAL
        _row(line, number, state)


def _note(state: _Open, line: str) -> None:
    """Keep what a line says about program, release and ranks."""
    program = _PROGRAM.search(line)
    if program:
        state.op = OPS[program[1]]
    average = _AVERAGE.search(line)
    state.average = average[1] if average else state.average
    state.averages += average is not None
    bounds = _BOUNDS.search(line)
    state.out_of_bounds = bounds[1] if bounds else state.out_of_bounds
    version = _VERSION.search(line)
    if version:
        state.release = version[1] or _packed(int(version[2]))
    calls = _CALLS.search(line)
    state.calls = (calls[1], calls[2]) if calls else state.calls
    heading = _HEADING.search(line) if not state.holds and len(line) <= LONGEST_HEADING and "NCCL" not in line else None
    if heading:
        state.heading = op_in(heading[1])
    device = _DEVICE.search(line)
    if device:
        if device[1] == "0":
            state.hosts = {}
            state.firsts += [] if line in state.firsts else [line]
        state.hosts[int(device[1])] = device[2]
        state.gpu = device[3].strip() or state.gpu


def _packed(code: int) -> str:
    """Return 2.18.3 for 21803, and 2.8.4 for 2804."""
    scale = 10_000 if code >= 10_000 else 1000
    return f"{code // scale}.{code % scale // 100}.{code % 100}"


def text_tables(lines: Iterable[str], name: str) -> Iterator[NcclTestsTable]:
    """Yield the tables in the text of one output; ``name`` may tell the operation where the text does not."""
    return _text(lines, name)


def _row(line: str, number: int, state: _Open) -> None:
    """Take a line of numbers; a row that cannot be used is noted, any other line is passed over."""
    words = line.split(maxsplit=2)
    if len(words) < 2 or not (words[0].isdecimal() and words[1].isdecimal()):
        return
    cells = place(line, state.columns)
    if cells is None:
        if len(line.split()) > len(state.columns) / 2:
            state.refused.append(TableRefusal("columns", number, line.strip()[:200]))
        return
    under: dict[str, list[str]] = {}
    for column, cell in zip(state.columns, cells, strict=True):
        under.setdefault(column.name, []).append(cell)
    row = _measured(under, number)
    if row is None:
        state.refused.append(TableRefusal("time", number, line.strip()[:200]))
        return
    setting = tuple(under.get(name, [""])[0] for name in ("type", "redop", "root"))
    state.rows.setdefault(setting, []).append(row)  # type: ignore[arg-type]


def _measured(under: dict[str, list[str]], number: int) -> SizeRow | None:
    """Return the row of the texts under each column; None without a time."""
    texts = zip(*(_two(under.get(name, [])) for name in ("time", "algbw", "busbw", "#wrong")), strict=True)
    sides = tuple(Side(*(text if is_number(text) else "" for text in side)) for side in texts)
    times = [_number(side.time_us) for side in sides]
    size, count = under["size"][0], under["count"][0]
    first = times[0] or times[1]
    if len(size) > LONGEST_NUMBER or not first or not 0 < first < float("inf"):
        return None
    return SizeRow(
        int(size),
        first * 1e-6,
        times[1] * 1e-6 if times[1] else None,
        int(count) if count.isdecimal() and len(count) <= LONGEST_NUMBER else None,
        _number(sides[0].busbw_gbs),
        _number(sides[1].busbw_gbs),
        number,
        sides,
    )


def _two(texts: list[str]) -> list[str]:
    return [*texts, "", ""][:2]


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _closed(state: _Open, name: str) -> Iterator[NcclTestsTable]:
    """Yield the table of each type, reduction and root; an operation not named is taken from heading or file name.

    Where several processes wrote at once, each as rank 0, each has its own table: the first row of a size is one's, the
    second the other's. Whose is whose cannot be told, nor on which hosts their ranks are.
    """
    # of a list with neither header nor row behind it the end may be missing
    ranks = max(state.hosts, default=-1) + 1 if state.holds or state.columns else 0
    guess = state.heading or op_in(name)
    processes = len(state.firsts)
    hosts = dict(state.hosts) if processes < 2 else {}
    parts = [
        (setting, rows)
        for setting, mixed in (state.rows.items() or [(("", "", ""), [])])
        for rows in ([mixed] if processes < 2 else _unmixed(mixed))
    ]
    facts = {"processes": str(processes)} if processes > 1 else {}
    if state.calls:
        facts |= {"warm-up calls": state.calls[0], "calls a size": state.calls[1]}
    if state.average and len(parts) == 1:
        facts["average_busbw_gbs"] = state.average
    for number, (setting, rows) in enumerate(parts):
        yield lawful(
            NcclTestsTable(
                state.op or guess,
                tuple(rows),
                name,
                ranks,
                len(set(hosts.values())),
                state.gpu,
                state.release,
                setting[0],
                facts,
                hosts,
                line=state.line,
                setting=" ".join(setting) if len(state.rows) > 1 else "",
                is_op_told=bool(state.op),
                refused=_refused(state) if number == 0 else (),
            )
        )


def _refused(state: _Open) -> tuple[TableRefusal, ...]:
    """Return what was refused while reading; older releases say only at the end that results are wrong, and not whose."""
    sides = (side for rows in state.rows.values() for row in rows for side in row.sides)
    if not state.out_of_bounds or any(side.wrong.strip("0N/A") for side in sides):
        return tuple(state.refused)
    told = TableRefusal("correct", 0, f"{state.out_of_bounds} values are out of bounds; of which size is not printed")
    return (*state.refused, told)


def _unmixed(rows: list[SizeRow]) -> list[list[SizeRow]]:
    """Return rows that several processes wrote between each other, the n-th row of each size in the n-th list."""
    seen: Counter[int] = Counter()
    apart: list[list[SizeRow]] = []
    for row in rows:
        if seen[row.size_bytes] == len(apart):
            apart.append([])
        apart[seen[row.size_bytes]].append(row)
        seen[row.size_bytes] += 1
    return apart
