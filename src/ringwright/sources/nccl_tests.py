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
from dataclasses import dataclass, field
from pathlib import Path

from ringwright.errors import InputError
from ringwright.sources.inputs import chunks, find
from ringwright.sources.source import Source

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
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([\d.eE+-]+)")
_KNOWN = {
    "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "error", "#wrong", "cputime", "timestamp", "i_min",
    "i_max", "i_p99", "i_cv%",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One size: seconds out of place and in place (None where not measured)."""

    size_bytes: int
    time_s: float
    inplace_s: float | None = None
    count: int | None = field(default=None, compare=False)  # elements as printed
    busbw_gbs: float | None = field(default=None, compare=False)  # as printed, out of place
    inplace_busbw_gbs: float | None = field(default=None, compare=False)

    @property
    def steady_s(self) -> float:
        """The out-of-place time, or the in-place one where the former is half as long again.

        nccl-tests warms up with its largest and smallest size; a size between them that runs another kernel pays for
        loading that kernel in its first loop, which is the out-of-place one.
        """
        if self.inplace_s is not None and 0 < self.inplace_s < self.time_s / 1.5:
            return self.inplace_s
        return self.time_s


@dataclass(frozen=True)
class Table:
    """One run of one operation; a field that the file does not say is empty, 0 or None."""

    op: str
    rows: tuple[Row, ...]
    name: str
    ranks: int = 0
    nodes: int = 0
    gpu: str = ""
    release: str = ""
    dtype: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)  # rank -> host, of the ranks that the file lists


@dataclass
class _Open:
    """What has been read since the last program line."""

    op: str = ""
    release: str = ""
    gpu: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    dtype: str = ""
    bus_factor: float = 0.0  # bus over algorithm bandwidth, of the last row
    average: str = ""  # bus bandwidth in GB/s, as the closing line prints it


def read_tables(paths: str | Path | list[str]) -> list[Table]:
    """Return every table of some files, in the order of the files; raise InputError where there is none."""
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    tables = [table for name in names for table in _file(name)]
    if not tables:
        raise InputError(
            "no nccl-tests table was found",
            where=", ".join(names[:3]),
            remedy="give the output of all_reduce_perf and its kin, a header and at least one row of numbers",
        )
    return tables


def _file(name: str) -> Iterator[Table]:
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


def _text(lines: Iterable[str], name: str) -> Iterator[Table]:
    """Yield the tables of one output; a new header or program closes the one before."""
    state = _Open()
    for raw in lines:
        line = _PREFIX.sub("", raw.rstrip("\r\n"))
        if state.rows and (_PROGRAM.search(line) or _DEVICE.search(line)):
            yield from _closed(state, name)
            state.columns = []
        _note(state, line)
        columns = _header(line)
        if columns:
            yield from _closed(state, name)
            state.columns, state.rows = columns, []
        elif state.columns:
            row = _row(line, state)
            if row is not None:
                state.rows.append(row)
    yield from _closed(state, name)


def _note(state: _Open, line: str) -> None:
    """Keep what a line says about program, release and ranks."""
    program = _PROGRAM.search(line)
    if program:
        state.op = OPS[program[1]]
    average = _AVERAGE.search(line)
    state.average = average[1] if average else state.average
    version = _VERSION.search(line)
    if version:
        state.release = version[1] or _packed(int(version[2]))
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


def text_tables(lines: Iterable[str], name: str) -> Iterator[Table]:
    """Yield the tables in the text of one output; ``name`` may tell the operation where the text does not."""
    return _text(lines, name)


def op_in(name: str) -> str:
    """Return the operation that a name mentions, "" for none."""
    return _op_of(name)


def _header(line: str) -> list[str]:
    """Return the column names of a header line, or nothing."""
    words = line.strip().lstrip("#").lower().split()
    words = [{"wrong": "#wrong", "cputime": "time"}.get(word, word) for word in words]
    return words if words[:2] == ["size", "count"] and "time" in words and set(words) <= _KNOWN else []


def _row(line: str, state: _Open) -> Row | None:
    """Return the row of a line of numbers, None for any other line."""
    words = line.split()
    columns = state.columns
    if not words or not words[0].isdigit() or len(words) <= columns.index("time"):
        return None
    times = [place for place, column in enumerate(columns) if column == "time" and place < len(words)]
    try:
        values = [float(words[place]) * 1e-6 for place in times]
        rates = [float(words[columns.index(rate)]) for rate in ("algbw", "busbw") if rate in columns]
    except (ValueError, IndexError):
        return None
    state.dtype = words[columns.index("type")] if "type" in columns else state.dtype
    if len(rates) == 2 and rates[0] > 1:
        state.bus_factor = rates[1] / rates[0]
    if not values or not 0 < values[0] < float("inf"):
        return None
    count = int(words[1]) if words[1].isdigit() else None
    inplace = values[1] if len(values) > 1 else None
    buses = [_number(words[place]) for place, column in enumerate(columns) if column == "busbw" and place < len(words)]
    return Row(int(words[0]), values[0], inplace, count, *[*buses, None, None][:2])


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _closed(state: _Open, name: str) -> Iterator[Table]:
    """Yield the open table if it has rows; an operation not named is taken from the file's name."""
    if not state.rows:
        return
    ranks = len(state.hosts) and max(state.hosts) + 1
    op = state.op or _op_of(name) or ("all-reduce" if state.bus_factor > 1.01 else "")  # no other has one above 1
    facts = {"average_busbw_gbs": state.average} if state.average else {}
    yield Table(
        op, tuple(state.rows), name, ranks, len(set(state.hosts.values())), state.gpu,
        state.release, state.dtype, facts, dict(state.hosts),
    )  # fmt: skip
    state.rows, state.average = [], ""


def _op_of(name: str) -> str:
    """Return the operation that a name mentions: ``n8.g4__all_reduce_output.dat`` -> all-reduce."""
    squashed = _SQUASHED.sub("", name.lower())
    for spelling, op in OPS.items():
        if spelling.replace("_", "") in squashed and (spelling != "reduce" or "reducescatter" not in squashed):
            return op
    return ""


def _json_lines(lines: Iterable[str], name: str) -> Iterator[Table]:
    """Yield a table per (operation, ranks, kernel) of JSON lines with ``size`` in bytes and ``time`` in us."""
    found: dict[tuple[str, int, int, str], list[Row]] = {}
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
        found.setdefault(key, []).append(Row(size, time_s))
    for (spelled, ranks, per_node, kernel), rows in found.items():
        facts = {"kernel": kernel} if kernel else {}
        nodes = ranks // per_node if per_node else 0
        yield Table(_op_of(spelled), tuple(rows), name, ranks, nodes, facts=facts)


def _csv(path: Path) -> Iterator[Table]:
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
    found: dict[str, list[Row]] = {}
    for number, row in enumerate(rows, 2):
        try:
            inplace = row.get("time_inplace_us")
            value = Row(int(row["bytes"]), float(row["time_us"]) * 1e-6, float(inplace) * 1e-6 if inplace else None)
        except ValueError as error:
            raise InputError(f"{error}", where=f"{path}:{number}", remedy="bytes and time_us are numbers") from error
        found.setdefault(row["case"], []).append(value)
    for case, measured in found.items():
        facts = cases.get(case, {})
        op = OPS.get(facts.get("collective", ""), "") or _op_of(case)
        ranks, nodes = (int(facts.get(key) or 0) for key in ("ranks", "nodes"))
        yield Table(op, tuple(measured), case, ranks, nodes, facts.get("gpu", ""), facts=facts)


def _cases(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as stream:
        return {row["case"]: row for row in csv.DictReader(stream)}
