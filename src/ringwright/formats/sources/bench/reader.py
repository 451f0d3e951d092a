"""From benchmark files to measurements in a Trace: of nccl-tests and its kin, and of tools with printed tables of their own."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.bounds.laws import reason
from ringwright.formats.sources.bench.aborted import own_error
from ringwright.formats.sources.bench.structured import NoBenchError, csv_tables, json_tables
from ringwright.formats.sources.bench.torch_text import torch_tables
from ringwright.formats.sources.c10d import operation
from ringwright.formats.sources.datatypes import BYTES, datatype
from ringwright.formats.sources.detect import further_kinds
from ringwright.formats.sources.kinds import document
from ringwright.formats.sources.members import Member, whole
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.formats.sources.tables.nccl_tests import read_tables, text_tables
from ringwright.formats.sources.tables.nccl_tests_table import NcclTestsTable, SizeRow, lawful
from ringwright.formats.sources.tables.printed_tables import TableTool, printed_tables
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "bench"
MOST_BYTES = 512 << 20
_NAMED_RELEASE = re.compile(r"nccl[_-]?v?(\d)[._-](\d{1,2})(?:[._-](\d{1,2}))?(?!\d)", re.IGNORECASE)
_CSV = re.compile(
    rb"^[^\n]*\b(?:size|bytes)\b[^\n]*,[^\n]*\btime|^[^\n]*\btime[^\n]*,[^\n]*\b(?:size|bytes)\b", re.IGNORECASE
)


def read_bench(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the measurements of benchmark files; InputError where none holds a row."""
    remedy = "give the output of all_reduce_perf and its kin: a header and at least one row of numbers"
    gathered, tables = _gathered(KIND, _tables, sources, remedy, progress)
    ranks = {0 if "processes" in table.facts else table.ranks for table in tables}
    is_rccl = any(table.facts.get("library") == "rccl" for table in tables)
    return gathered.trace(
        world=next(iter(ranks)) or None if len(ranks) == 1 else None, library="rccl" if is_rccl else None
    )


def read_printed(
    kind: str, tool: TableTool, sources: list[Source], remedy: str, progress: Callable[[int], None] | None = None
) -> Trace:
    """Return the measurements of a tool that prints titles, column names and rows; InputError where no file holds a row."""

    def read(member: Member, data: bytes) -> list[NcclTestsTable]:
        return list(printed_tables(tool, data.decode("utf-8", "replace").splitlines(), member.title))

    gathered, tables = _gathered(kind, read, sources, remedy, progress)
    ranks = {table.ranks for table in tables}
    libraries = {table.facts.get("library", "") for table in tables}
    lacking = ["nranks: these tables do not tell how many ranks took part"] if 0 in ranks else []
    return gathered.trace(
        world=next(iter(ranks)) or None if len(ranks) == 1 else None,
        library=next(iter(libraries)) or None if len(libraries) == 1 else None,
        limits=lacking,
    )


def _gathered(
    kind: str,
    read: Callable[[Member, bytes], list[NcclTestsTable]],
    sources: list[Source],
    remedy: str,
    progress: Callable[[int], None] | None,
) -> tuple[Gathered, list[NcclTestsTable]]:
    """Return what the tables of some files hold, and the tables."""
    gathered = Gathered(kind)
    tables: list[tuple[NcclTestsTable, str]] = []
    ended: list[str] = []
    bare: list[tuple[NcclTestsTable, str]] = []  # ranks that are listed, and no row
    for member in gathered.members(sources, progress):
        data = whole(member, MOST_BYTES)
        listed = read(member, data)
        mine = [table for table in listed if table.rows or table.refused]
        tables += [(table, member.name) for table in mine]
        gathered.inputs.append(member.name)
        if not mine:
            ended.append(_without_rows(gathered, member.name, own_error(data.decode("utf-8", "replace")), listed))
            bare += [(table, member.name) for table in listed]
    if not tables and not any(ended) and not any(further_kinds(each, kind) for each in sources):
        tables = bare
    if not tables:
        told = next(filter(None, ended), "")
        raise InputError(
            f"no row of a benchmark was found{f'; {told}' if told else ''}",
            where=", ".join(source.name for source in sources[:3]),
            remedy=remedy,
        )
    for table, file in _apart(tables):
        _emit(gathered, table, file)
    return gathered, [table for table, _ in tables]


def _without_rows(gathered: Gathered, name: str, said: str, listed: list[NcclTestsTable]) -> str:
    """Note a file without a row; return the error that it ends with, "" for none."""
    told = f"the run was aborted: {said}" if said else "its table is cut, or the run had not begun" if listed else ""
    outcome = "other" if listed and not said else "refused"
    gathered.note(name, outcome, f"no row of a benchmark: {told or 'header only, aborted, or another format'}")
    gathered.lose(f"{name}: no row of a benchmark{f': {told}' if told else ''}")
    return told if said else ""


def _apart(tables: list[tuple[NcclTestsTable, str]]) -> list[tuple[NcclTestsTable, str]]:
    """Return the tables under names that tell them apart: two tables are never one, be they of one file or of one name."""
    shared = Counter((table.name, table.op, table.ranks, table.dtype) for table, _ in tables)
    files: defaultdict[str, set[str]] = defaultdict(set)
    for table, file in tables:
        files[table.name].add(file)
    apart = []
    for table, file in tables:
        title = table.name
        if shared[table.name, table.op, table.ranks, table.dtype] > 1:
            is_elsewhere = len(files[title]) > 1
            title = file if is_elsewhere and title in file else title
            title += f", line {table.line}" if table.line else ""
            title += f", {table.setting}" if table.setting else ""
        apart.append((replace(table, name=title), file))
    return _numbered(apart)


def _numbered(tables: list[tuple[NcclTestsTable, str]]) -> list[tuple[NcclTestsTable, str]]:
    """Return the tables, those that still share a name with a number behind it."""
    taken: Counter[tuple[str, str, int, str]] = Counter()
    numbered = []
    for table, file in tables:
        key = (table.name, table.op, table.ranks, table.dtype)
        taken[key] += 1
        numbered.append((replace(table, name=f"{table.name}, table {taken[key]}") if taken[key] > 1 else table, file))
    return numbered


def _tables(member: Member, data: bytes) -> list[NcclTestsTable]:
    """Return the tables of a file, without the rows that break a law."""
    return [table if table.refused else lawful(table) for table in _read(member, data)]


def _read(member: Member, data: bytes) -> list[NcclTestsTable]:
    try:
        if document(data[:4096]):
            return json_tables(data, member.title)
        if _CSV.search(data[:4096].lstrip().split(b"\n", 1)[0]) and b"#" not in data[:64]:
            return _with_cases(member) or csv_tables(data, member.title)
    except NoBenchError:
        return []
    text = data.decode("utf-8", "replace")
    # a folder may carry what the file's name does not: which release, which operation
    tables = list(text_tables(text.splitlines(), member.title))
    return tables or torch_tables(text.splitlines(), member.title)


def _with_cases(member: Member) -> list[NcclTestsTable]:
    """Return the tables of ``*_times.csv`` where ``*_cases.csv`` lies beside it."""
    path = Path(member.name)
    if not path.name.endswith("times.csv") or not path.with_name(path.name.replace("times", "cases")).is_file():
        return []
    try:
        return read_tables(member.name)
    except InputError:
        return []


def _communicator(gathered: Gathered, table: NcclTestsTable, ranks: int, ground: str) -> int:
    return gathered.communicator(
        f"bench {len(gathered.comms)}",
        name=f"{table.name}: {table.op or 'unknown operation'}",
        size=ranks,
        nnodes=table.nodes or None,
        ground=ground,
        confidence=1.0 if ground == "read" else 0.8,
    )


def _emit(gathered: Gathered, table: NcclTestsTable, file: str) -> None:
    """Write one table: its group, its rows, and what it says of itself; then what laws refused."""
    for refused in table.refused:
        shown = f"{refused.detail}" + (f" (line {refused.line})" if refused.line else "")
        gathered.note(file, "refused", reason(refused.law), at=refused.line or None, example=f"{table.name}: {shown}")
    ranks, ground = (table.ranks, "read") if table.ranks else (_ranks_implied(table), "inferred")
    number = _communicator(gathered, table, ranks, ground) if ranks else None
    for rank, host in table.hosts.items():
        gathered.device(rank, host)
    kind = datatype(table.dtype) if table.dtype else None
    op = table.op or operation(table.facts.get("operation", "")) or "unknown"
    for row_number, row in enumerate(table.rows):
        at = row.line or row_number
        common = {
            "kind": "measurement",
            "op": op,
            "communicator": number,
            "nranks": ranks or None,
            "nnodes": table.nodes or None,
            "size_bytes": row.size_bytes,
            "count": row.count,
            "datatype": kind,
            "element_bytes": BYTES[kind] if kind else None,
            "text": table.name,
            "records": 1,
            "multiplicity": 1,
            "file": file,
            "line": at,
            "kernel": table.facts.get("kernel"),
            "ground": "read",
            "confidence": 1.0,
        }
        _sides(gathered, row, common)
    gathered.note(file, "understood", "rows", len(table.rows))
    _claims(gathered, table, file, ranks, ground)


def _sides(gathered: Gathered, row: SizeRow, common: dict[str, Any]) -> None:
    if not row.sides or row.sides[0].time_us:  # else only the in-place run was measured
        gathered.events.add(task="out-of-place", duration_s=row.time_s, value=row.busbw_gbs, **common)
    if row.inplace_s is not None and row.inplace_s > 0:
        gathered.events.add(task="in-place", duration_s=row.inplace_s, value=row.inplace_busbw_gbs, **common)
    for column, value in row.others:
        gathered.events.add(**{**common, "kind": "statistic", "task": column, "value": value})


def _ranks_implied(table: NcclTestsTable) -> int:
    """Return the ranks that bus over algorithm bandwidth imply, 0 where rounding leaves more than one answer."""
    if any(row.busbw_gbs == 0 and row.size_bytes / row.time_s >= 1e9 for row in table.rows):
        return 1  # 0.00 beside an algorithm bandwidth of 1 GB/s and more: the factor (p-1)/p is 0
    for row in sorted(table.rows, key=lambda row: -(row.busbw_gbs or 0)):
        if not row.busbw_gbs or row.busbw_gbs < 1:
            break
        share = row.busbw_gbs / (row.size_bytes / row.time_s / 1e9)
        share = share / 2 if table.op == "all-reduce" else share
        if table.op not in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all") or not 0 < share < 1:
            break
        error = 0.005 / row.busbw_gbs + 0.5 / 10**4  # two decimals of a rate, four digits of a time
        low, high = (1 / (1 - min(share * (1 + sign * error), 0.999999)) for sign in (-1, 1))
        p = round(1 / (1 - share))
        if p > 1 and p - 0.5 < low and high < p + 0.5:
            return p
    return 0


def _claims(gathered: Gathered, table: NcclTestsTable, file: str, ranks: int, ground: str) -> None:
    """Note release, GPU, nodes and ranks, each with its ground; ``source`` is the table's name."""
    release, how = table.release, "read"
    if not release:
        named = _NAMED_RELEASE.search(file.replace("\\", "/"))
        if named:
            release, how = ".".join(part for part in named.groups() if part), "inferred"
    if release:
        note = "" if how == "read" else "from the file's name"
        gathered.release(release)
        gathered.claim("release", release, table.name, ground=how, confidence=1.0 if how == "read" else 0.8, note=note)
    if table.gpu:
        gathered.claim("gpu", table.gpu, table.name)
    if table.nodes:
        gathered.claim("nodes", table.nodes, table.name)
    if ranks:
        note = "" if ground == "read" else "from bus over algorithm bandwidth"
        gathered.claim(
            "ranks", ranks, table.name, ground=ground, confidence=1.0 if ground == "read" else 0.8, note=note
        )
    if not table.op:
        note = "neither the output nor the file's name says it"
        gathered.claim("operation", "not named", table.name, ground="assumed", confidence=0.0, note=note)
    for field, value in table.facts.items():
        gathered.claim(field, value, table.name)
    if table.hosts:
        gathered.claim("hosts", " ".join(sorted(set(table.hosts.values()))), table.name)
