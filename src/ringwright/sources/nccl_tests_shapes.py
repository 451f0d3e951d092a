"""The two other shapes in which measurements of nccl-tests travel: JSON lines and CSV.

JSON lines: mscclpp's baselines (``name``, ``ranks``, ``size`` in bytes, ``time`` in us). CSV: ``*_times.csv`` beside
``*_cases.csv`` (columns case, bytes, time_us, time_inplace_us).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from ringwright.errors import InputError
from ringwright.laws.tables import Side
from ringwright.sources.csv_rows import csv_rows, finite, whole_number
from ringwright.sources.nccl_tests_table import OPS, NcclTestsTable, SizeRow, lawful, op_in


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
    """Yield a table per case of ``*_times.csv``; what the case is stands in ``*_cases.csv`` beside it."""
    remedy = "give nccl-tests output, or a file like nccl_times.csv with its nccl_cases.csv"
    rows = csv_rows(path, ("case", "bytes", "time_us"), remedy=remedy)
    cases = _cases(path.with_name(path.name.replace("times", "cases")))
    tables: dict[str, list[SizeRow]] = {}
    for number, row in enumerate(rows, 2):
        try:
            inplace = row.get("time_inplace_us")
            side = Side(row["time_us"], row.get("algbw_gbps") or "", row.get("busbw_gbps") or "")
            value = SizeRow(
                whole_number(row["bytes"]),
                finite(row["time_us"]) * 1e-6,
                finite(inplace) * 1e-6 if inplace else None,
                line=number,
                sides=(side,),
            )
        except ValueError as error:
            raise InputError(f"{error}", where=f"{path}:{number}", remedy="bytes and time_us are numbers") from error
        tables.setdefault(row["case"], []).append(value)
    for case, measured in tables.items():
        facts = cases.get(case, {})
        op = OPS.get(facts.get("collective", ""), "") or op_in(case)
        try:
            ranks, nodes = (whole_number(facts.get(key) or "0") for key in ("ranks", "nodes"))
        except ValueError as error:
            raise InputError(f"case {case}: {error}", where=str(path), remedy="ranks and nodes are numbers") from error
        yield lawful(NcclTestsTable(op, tuple(measured), case, ranks, nodes, facts.get("gpu", ""), facts=facts))


def _cases(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    return {row["case"]: row for row in csv_rows(path, ("case",))}
