"""The two other shapes in which measurements of nccl-tests travel: JSON lines and CSV.

JSON lines: mscclpp's baselines (``name``, ``ranks``, ``size`` in bytes, ``time`` in us). CSV: ``*_times.csv`` beside
``*_cases.csv`` (columns case, bytes, time_us, time_inplace_us).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from ringwright.bounds.laws.tables import Side
from ringwright.formats.sources.tables.csv_rows import csv_rows, finite, whole_number
from ringwright.formats.sources.tables.nccl_columns import is_number
from ringwright.formats.sources.tables.nccl_tests_table import OPS, NcclTestsTable, SizeRow, TableRefusal, lawful, op_in
from ringwright.ground.errors import InputError


def json_lines(lines: Iterable[str], name: str) -> Iterator[NcclTestsTable]:
    """Yield a table per (operation, ranks, kernel) of JSON lines with ``size`` in bytes and ``time`` in us."""
    tables: dict[tuple[str, int, int, str], list[SizeRow]] = {}
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
        tables.setdefault(key, []).append(SizeRow(size, time_s, line=number))
    for (spelled, ranks, per_node, kernel), rows in tables.items():
        facts = {"kernel": kernel} if kernel else {}
        nodes = ranks // per_node if per_node else 0
        yield lawful(NcclTestsTable(op_in(spelled), tuple(rows), name, ranks, nodes, facts=facts))


def csv_tables(path: Path) -> Iterator[NcclTestsTable]:
    """Yield a table per case of ``*_times.csv``; what the case is stands in ``*_cases.csv`` beside it.

    A row that cannot be read is refused with its line; a case without a time is a table without rows. InputError for a file
    that is no such table.
    """
    remedy = "give nccl-tests output, or a file like nccl_times.csv with its nccl_cases.csv"
    rows = csv_rows(path, ("case", "bytes", "time_us"), remedy=remedy)
    cases = _cases(path.with_name(path.name.replace("times", "cases")))
    tables: dict[str, list[SizeRow]] = {case: [] for case in cases}
    refused: dict[str, list[TableRefusal]] = {}
    for number, row in enumerate(rows, 2):
        mine = tables.setdefault(row["case"], [])
        try:
            mine.append(_size(row, number))
        except ValueError as error:
            refused.setdefault(row["case"], []).append(TableRefusal("time", number, str(error)))
    for case, measured in tables.items():
        facts = cases.get(case, {})
        op = OPS.get(facts.get("collective", ""), "") or op_in(case)
        ranks, nodes = (_count(facts.get(key, "")) for key in ("ranks", "nodes"))
        left = tuple(refused.get(case, ()))
        yield lawful(
            NcclTestsTable(op, tuple(measured), case, ranks, nodes, facts.get("gpu", ""), facts=facts, refused=left)
        )


def _size(row: dict[str, str], number: int) -> SizeRow:
    """Return a row of ``*_times.csv``; ValueError for one without a size and a time above 0."""
    inplace = row.get("time_inplace_us")
    size, time_s = whole_number(row["bytes"]), finite(row["time_us"]) * 1e-6
    if not time_s:
        raise ValueError(f"{row['time_us'][:40]} us for {size} B is no time")
    rates = [text if is_number(text := row.get(name) or "") else "" for name in ("algbw_gbps", "busbw_gbps")]
    side = Side(row["time_us"], *rates)
    return SizeRow(size, time_s, finite(inplace) * 1e-6 if inplace else None, line=number, sides=(side,))


def _count(text: str) -> int:
    """Return a number of ranks or nodes, 0 where it is not said."""
    try:
        return whole_number(text or "0")
    except ValueError:
        return 0


def _cases(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    return {row["case"]: row for row in csv_rows(path, ("case",))}
