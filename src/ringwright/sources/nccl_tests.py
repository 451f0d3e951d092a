"""Tables of nccl-tests and rccl-tests, as text, and the two other shapes in which such measurements travel.

Text: every header variant from 2.0 on (with and without redop, root, in-place and error columns), several tables in one
file, lines of other programs in between, prefixes of mpirun and srun. JSON lines: mscclpp's baselines (``name``, ``ranks``,
``size``, ``time``). CSV: ``*_times.csv`` beside ``*_cases.csv`` (columns case, bytes, time_us, time_inplace_us).

Units: bytes as in the size column (for all-gather, reduce-scatter and all-to-all the total over ranks), seconds of the
out-of-place and in-place runs. Source: ``src/common.cu`` of NVIDIA/nccl-tests.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ringwright.errors import InputError
from ringwright.laws.ceilings import above, ceiling
from ringwright.laws.tables import Printed, Side, factor_of, judge
from ringwright.sources.inputs import chunks, find
from ringwright.sources.nccl_columns import HeaderWord, header, is_number, place
from ringwright.sources.source import Source
from ringwright.units import format_size

OPS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "alltoallv": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send-recv",
    "hypercube": "all-gather",
}
_PREFIX = re.compile(r"^\s*(?:\[\d+,\d+\]<std\w+>:|\d+:\s|\w[\w.-]*:\s(?=\s*#|\s+\d))\s?")
_PROGRAM = re.compile(r"\b(" + "|".join(sorted(OPS, key=len, reverse=True)) + r")(?:_perf|\.exe)\b")
_DEVICE = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s*(.*)")
_VERSION = re.compile(r"\b(?:NCCL|RCCL) version[ :]+(\d+\.\d+\.\d+)|nccl-library=(\d+)")
_SQUASHED = re.compile(r"[^a-z]")
_LAST = re.compile(r"#\s*(?:Avg bus bandwidth|Out of bounds|Collective test concluded|$)")
LONGEST_NUMBER = 18  # digits of a size
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([\d.eE+-]+)")
_HEADING = re.compile(
    r"\b(all[ _-]?(?:reduce|gather)|reduce[ _-]?scatter|all[ _-]?to[ _-]?all|broadcast|reduce|gather|scatter|send[ _-]?recv)\b",
    re.IGNORECASE,
)
LONGEST_HEADING = 60  # letters of a line above a table that names its operation


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One size: seconds out of place and in place (None where not measured)."""

    size_bytes: int
    time_s: float
    inplace_s: float | None = None
    count: int | None = field(default=None, compare=False)  # elements as printed
    busbw_gbs: float | None = field(default=None, compare=False)  # as printed, out of place
    inplace_busbw_gbs: float | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)  # of the file; 0 where it has none
    sides: tuple[Side, ...] = field(default=(), compare=False)  # both runs as printed

    @property
    def steady_s(self) -> float:
        """The out-of-place time, or the in-place one where the former is half as long again.

        nccl-tests warms up with its largest and smallest size; a size between them that runs another kernel pays for
        loading that kernel in its first loop, which is the out-of-place one.
        """
        if self.inplace_s is not None and 0 < self.inplace_s < self.time_s / 1.5:
            return self.inplace_s
        return self.time_s


@dataclass(frozen=True, slots=True)
class TableRefusal:
    """What a law refused of a table: a row at its line, or (line 0) what the table says of itself."""

    law: str
    line: int
    detail: str


@dataclass(frozen=True)
class NcclTestsTable:
    """One run of one operation; a field that the file does not say is empty, 0 or None."""

    op: str
    rows: tuple[SizeRow, ...]
    name: str
    ranks: int = 0
    nodes: int = 0
    gpu: str = ""
    release: str = ""
    dtype: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)  # rank -> host, of the ranks that the file lists
    line: int = 0  # of the header
    setting: str = ""  # type, reduction and root, where one header stands above several
    is_op_told: bool = True  # False where only a name or a heading tells the operation
    refused: tuple[TableRefusal, ...] = ()


_Setting = tuple[str, str, str]  # type, reduction, root


@dataclass
class _Open:
    """What has been read since the end of the table before."""

    op: str = ""
    heading: str = ""  # operation that a line of plain text names
    release: str = ""
    gpu: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    columns: list[HeaderWord] = field(default_factory=list)
    line: int = 0
    rows: dict[_Setting, list[SizeRow]] = field(default_factory=dict)
    refused: list[TableRefusal] = field(default_factory=list)
    average: str = ""  # bus bandwidth in GB/s, as the closing line prints it
    is_ended: bool = False  # the closing line was read

    @property
    def holds(self) -> bool:
        """Whether a row was read, be it a refused one."""
        return bool(self.rows or self.refused)


def read_tables(paths: str | Path | list[str]) -> list[NcclTestsTable]:
    """Return every table of some files, in the order of the files; raise InputError where there is none."""
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    tables = [table for name in names for table in _file(name) if table.rows]
    if not tables:
        raise InputError(
            "no nccl-tests table was found",
            where=", ".join(names[:3]),
            remedy="give the output of all_reduce_perf and its kin, a header and at least one row of numbers",
        )
    return tables


def _file(name: str) -> Iterator[NcclTestsTable]:
    path = Path(name)
    if path.suffix == ".csv" and path.is_file():
        yield from _csv(path)
        return
    sources = find([name])
    for source in sources:
        title, lines = Path(source.name).name, _lines(source)
        first = next((line for line in lines if line.strip()), "")
        lines = itertools.chain([first], lines)
        try:
            yield from list(_json_lines(lines, title) if first.lstrip().startswith("{") else _text(lines, title))
        except InputError:
            if len(sources) == 1:  # in a folder other files may lie beside the tables
                raise


def _lines(source: Source) -> Iterator[str]:
    for chunk in chunks(source):
        yield from chunk.data.decode("utf-8", "replace").splitlines()


def _text(lines: Iterable[str], name: str) -> Iterator[NcclTestsTable]:
    """Yield the tables of one output; its closing line, a new header or program closes a table, and what was said with it."""
    state = _Open()
    for number, raw in enumerate(lines, 1):
        line = _PREFIX.sub("", raw.rstrip("\r\n"))
        columns = header(line)
        begins = columns or _PROGRAM.search(line) or _DEVICE.search(line)
        if state.holds and (state.is_ended or begins) and not _LAST.search(line):
            yield from _closed(state, name)
            state = _Open()
        _note(state, line)
        if columns:
            state.columns, state.line = columns, number
        elif state.columns:
            _row(line, number, state)
    yield from _closed(state, name)


def _note(state: _Open, line: str) -> None:
    """Keep what a line says about program, release and ranks."""
    program = _PROGRAM.search(line)
    if program:
        state.op = OPS[program[1]]
    average = _AVERAGE.search(line)
    state.average = average[1] if average else state.average
    state.is_ended = state.is_ended or bool(average)
    version = _VERSION.search(line)
    if version:
        state.release = version[1] or _packed(int(version[2]))
    heading = _HEADING.search(line) if not state.holds and len(line) <= LONGEST_HEADING and "NCCL" not in line else None
    if heading:
        state.heading = _op_of(heading[1])
    device = _DEVICE.search(line)
    if device:
        if device[1] == "0":
            state.hosts = {}
        state.hosts[int(device[1])] = device[2]
        state.gpu = device[3].strip() or state.gpu


def _packed(code: int) -> str:
    """Return 2.18.3 for 21803, and 2.8.4 for 2804."""
    scale = 10_000 if code >= 10_000 else 1000
    return f"{code // scale}.{code % scale // 100}.{code % 100}"


def text_tables(lines: Iterable[str], name: str) -> Iterator[NcclTestsTable]:
    """Yield the tables in the text of one output; ``name`` may tell the operation where the text does not."""
    return _text(lines, name)


def op_in(name: str) -> str:
    """Return the operation that a name mentions, "" for none."""
    return _op_of(name)


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
    texts = zip(*(_two(under.get(name, [])) for name in ("time", "algbw", "busbw")), strict=True)
    sides = tuple(Side(*(text if is_number(text) else "" for text in side)) for side in texts)
    times = [_number(side.time_us) for side in sides]
    size, count = under["size"][0], under["count"][0]
    first = times[0] or times[1]
    if len(size) > LONGEST_NUMBER or not first or not 0 < first < float("inf"):
        return None
    return SizeRow(
        int(size), first * 1e-6, times[1] * 1e-6 if times[1] else None,
        int(count) if count.isdecimal() and len(count) <= LONGEST_NUMBER else None,
        _number(sides[0].busbw_gbs), _number(sides[1].busbw_gbs), number, sides,
    )  # fmt: skip


def _two(texts: list[str]) -> list[str]:
    return [*texts, "", ""][:2]


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _closed(state: _Open, name: str) -> Iterator[NcclTestsTable]:
    """Yield the table of each type, reduction and root; an operation not named is taken from heading or file name."""
    if not state.holds:
        return
    ranks = len(state.hosts) and max(state.hosts) + 1
    guess = state.heading or _op_of(name)
    facts = {"average_busbw_gbs": state.average} if state.average else {}
    for place_, (setting, rows) in enumerate(state.rows.items() or [(("", "", ""), [])]):
        yield lawful(NcclTestsTable(
            state.op or guess, tuple(rows), name, ranks, len(set(state.hosts.values())), state.gpu, state.release,
            setting[0], facts if len(state.rows) == 1 else {}, dict(state.hosts), line=state.line,
            setting=" ".join(setting) if len(state.rows) > 1 else "", is_op_told=bool(state.op),
            refused=tuple(state.refused) if place_ == 0 else (),
        ))  # fmt: skip


def lawful(table: NcclTestsTable) -> NcclTestsTable:
    """Return the table without the rows that break a law; these stand in ``refused``, each with its line and the reason."""
    printed = [Printed(row.size_bytes, row.sides) for row in table.rows]
    judged = judge(table.op, table.ranks, printed, is_op_told=table.is_op_told)
    rows = tuple(row for at, row in enumerate(table.rows) if at not in judged.broken)
    refused = [TableRefusal(law, table.rows[at].line, detail) for at, (law, detail) in judged.broken.items()]
    told = [(row, _too_fast(row, table)) for row in rows]
    rows = tuple(row for row, detail in told if not detail)
    refused += [TableRefusal("ceiling", row.line, detail) for row, detail in told if detail]
    ranks, op = table.ranks, table.op
    if judged.ranks_refused:
        ranks, rows = 0, tuple(replace(row, busbw_gbs=None, inplace_busbw_gbs=None) for row in rows)
        refused.append(TableRefusal("ranks", 0, judged.ranks_refused))
    if judged.op_refused:
        op = ""
        refused.append(TableRefusal("busbw", 0, judged.op_refused))
    op = op or ("all-reduce" if _exceeds(rows) else "")
    return replace(table, op=op, ranks=ranks, rows=rows, refused=(*table.refused, *refused))


def _too_fast(row: SizeRow, table: NcclTestsTable) -> str:
    """Return how a row breaks the law of ceilings, "" where it holds."""
    limit = ceiling(table.op, table.ranks or None, table.nodes or None, table.gpu)
    factor = factor_of(table.op, table.ranks)
    runs = ((row.time_s, row.busbw_gbs), (row.inplace_s, row.inplace_busbw_gbs))
    rates = (row.size_bytes / time_s / 1e9 * factor if time_s and factor is not None else bus for time_s, bus in runs)
    told = (above(rate, limit) for rate in rates)
    return next((f"{format_size(row.size_bytes)}: {text}" for text in told if text), "")


def _exceeds(rows: tuple[SizeRow, ...]) -> bool:
    """Say whether bus bandwidth is above algorithm bandwidth: no operation but all-reduce has a factor above 1."""
    rates = [
        (float(side.algbw_gbs), float(side.busbw_gbs))
        for row in rows
        for side in row.sides
        if side.algbw_gbs and side.busbw_gbs
    ]
    return any(algorithm > 1 and bus > 1.01 * algorithm for algorithm, bus in rates[-8:])


def _op_of(name: str) -> str:
    """Return the operation that a name mentions: ``n8.g4__all_reduce_output.dat`` -> all-reduce."""
    squashed = _SQUASHED.sub("", name.lower())
    for spelling, op in OPS.items():
        if spelling.replace("_", "") in squashed and (spelling != "reduce" or "reducescatter" not in squashed):
            return op
    return ""


def _json_lines(lines: Iterable[str], name: str) -> Iterator[NcclTestsTable]:
    """Yield a table per (operation, ranks, kernel) of JSON lines with ``size`` in bytes and ``time`` in us."""
    found: dict[tuple[str, int, int, str], list[SizeRow]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            size, time_s = int(entry["size"]), float(entry["time"]) * 1e-6
            ranks, per_node = int(entry.get("ranks", 0)), int(entry.get("ranksPerNode", 0))
            key = (str(entry["name"]), ranks, per_node, str(entry.get("kernel", "")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            where = f"{name}:{number}"
            raise InputError(
                f"a line is no measurement: {error}", where=where, remedy="lines need name, size, time"
            ) from error
        found.setdefault(key, []).append(SizeRow(size, time_s))
    for (spelled, ranks, per_node, kernel), rows in found.items():
        facts = {"kernel": kernel} if kernel else {}
        nodes = ranks // per_node if per_node else 0
        yield NcclTestsTable(_op_of(spelled), tuple(rows), name, ranks, nodes, facts=facts)


def _csv(path: Path) -> Iterator[NcclTestsTable]:
    """Yield a table per case of ``*_times.csv``; what the case is stands in ``*_cases.csv`` beside it."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if not rows or not {"case", "bytes", "time_us"} <= set(rows[0]):
        raise InputError(
            f"{path.name} has no columns case, bytes, time_us",
            where=str(path),
            remedy="give nccl-tests output, or a file like nccl_times.csv with its nccl_cases.csv",
        )
    cases = _cases(path.with_name(path.name.replace("times", "cases")))
    found: dict[str, list[SizeRow]] = {}
    for number, row in enumerate(rows, 2):
        try:
            inplace = row.get("time_inplace_us")
            side = Side(row["time_us"], row.get("algbw_gbps") or "", row.get("busbw_gbps") or "")
            value = SizeRow(
                int(row["bytes"]), float(row["time_us"]) * 1e-6, float(inplace) * 1e-6 if inplace else None, line=number,
                sides=(side,),
            )  # fmt: skip
        except ValueError as error:
            raise InputError(f"{error}", where=f"{path}:{number}", remedy="bytes and time_us are numbers") from error
        found.setdefault(row["case"], []).append(value)
    for case, measured in found.items():
        facts = cases.get(case, {})
        op = OPS.get(facts.get("collective", ""), "") or _op_of(case)
        ranks, nodes = (int(facts.get(key) or 0) for key in ("ranks", "nodes"))
        yield lawful(NcclTestsTable(op, tuple(measured), case, ranks, nodes, facts.get("gpu", ""), facts=facts))


def _cases(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as stream:
        return {row["case"]: row for row in csv.DictReader(stream)}
