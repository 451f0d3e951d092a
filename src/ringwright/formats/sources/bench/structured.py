"""Benchmark results that come as JSON or CSV, as tables of nccl-tests.

- nccl-tests ``-J``: one object with ``config``, ``results``, ``nccl_version`` (``src/util.cu``).
- rccl-tests and mscclpp: an object a row with ``name``, ``ranks``, ``size``, ``time``, ``algBw``, ``busBw`` (time in us).
- superbench: ``nccl-bw[:setting]/operation_size_time`` and ``_algbw``, ``_busbw`` in flat or nested objects, a node a line.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from ringwright.bounds.laws.tables import Side
from ringwright.formats.sources.gate.salvage import whole_objects
from ringwright.formats.sources.reader_rows import whole_number
from ringwright.formats.sources.tables.nccl_tests_table import NcclTestsTable, SizeRow, op_in

_SUPERBENCH = re.compile(
    r"^(?P<bench>(?:nccl|rccl)-bw)(?::(?P<setting>[^/]*))?/(?:(?P<extra>\w+)_)?(?P<op>[a-z]+)_(?P<size>\d+)_(?P<what>time|algbw|busbw)(?::\d+)?$"
)
MOST_DEPTH = 6
_SIZE = 1 << 62


class NoBenchError(ValueError):
    """The text is none of these shapes."""


def json_tables(data: bytes, name: str) -> list[NcclTestsTable]:
    """Return the tables of a JSON document or of JSON lines; NoBenchError where there is none."""
    documents = _documents(data)
    tables = [table for document in documents if isinstance(document, dict) for table in _nccl_tests(document, name)]
    tables += _reports([entry for document in documents for entry in _entries(document)], name)
    for document in documents:
        tables += _superbench(document, name)
    if not tables:
        raise NoBenchError("JSON without a measurement that is known")
    return tables


def _documents(data: bytes) -> list[Any]:
    try:
        return [msgspec.json.decode(data)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    documents = []
    for line in data.splitlines():
        try:
            documents.append(msgspec.json.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return documents or list(whole_objects(b"[" + data)) or list(whole_objects(data))


def _entries(document: Any) -> list[dict[str, Any]]:
    """Return the rows of a document that is a row, or a list of rows."""
    items = document if isinstance(document, list) else [document]
    return [item for item in items if isinstance(item, dict) and "time" in item and "size" in item]


def _positive(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15
    return float(value) if fits else None


def _devices(config: Mapping[str, Any]) -> tuple[dict[int, str], int, str]:
    """Return the host of each rank that is written, how many ranks there are, and their GPU."""
    listed = config.get("devices")
    devices = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    ranks_said = [(whole_number(entry.get("rank"), 1 << 24), str(entry.get("hostname", "?"))) for entry in devices]
    hosts = {rank: host for rank, host in ranks_said if rank is not None}
    # one line of a process may hold several GPUs, of which only the first is written; ranks are counted by threads x GPUs
    each = (whole_number(config.get("nthreads"), 4096) or 1) * (whole_number(config.get("ngpus"), 4096) or 1)
    ranks = max(max(hosts, default=-1) + each, 0) if hosts else 0
    return hosts, ranks, next((str(entry["device_info"]) for entry in devices if entry.get("device_info")), "")


def _nccl_tests(document: dict[str, Any], name: str) -> Iterator[NcclTestsTable]:
    """Yield the table of ``all_reduce_perf -J``: the program stands in ``args``, the ranks in ``config.devices``."""
    results, config = document.get("results"), document.get("config")
    if not isinstance(results, list) or not isinstance(config, dict):
        return
    rows = [row for entry in results if isinstance(entry, dict) and (row := _two_sided(entry))]
    if not rows:
        return
    hosts, ranks, gpu = _devices(config)
    arguments = document.get("args")
    program = str(arguments[0]) if isinstance(arguments, list) and arguments else ""
    code = whole_number(document.get("nccl_version"), 10**7)
    average = document.get("average_bus_bandwidth")
    facts = {}
    if isinstance(average, dict) and _positive(average.get("bandwidth")):
        facts["average_busbw_gbs"] = str(average["bandwidth"])
    dtype = next((str(entry["type"]) for entry in results if isinstance(entry, dict) and "type" in entry), "")
    op = op_in(program.rsplit("/", 1)[-1]) or op_in(name)
    yield NcclTestsTable(
        op, tuple(rows), name, ranks, len(set(hosts.values())), gpu, _release(code), dtype, facts, hosts
    )


def _release(code: int | None) -> str:
    if not code or code < 1000:
        return ""
    scale = 10_000 if code >= 10_000 else 1000
    return f"{code // scale}.{code % scale // 100}.{code % 100}"


def _two_sided(entry: dict[str, Any]) -> SizeRow | None:
    """Return a row with its out-of-place and in-place halves; one of them may be null."""
    held = [entry.get(side) for side in ("out_of_place", "in_place")]
    sides: list[dict[str, Any]] = [side if isinstance(side, dict) else {} for side in held]
    times = [_positive(side.get("time", side.get("cpu_time"))) for side in sides]
    buses = [_positive(side.get("bus_bw")) for side in sides]
    size = whole_number(entry.get("size"), _SIZE)
    first = times[0] or times[1]
    if size is None or size < 0 or first is None:
        return None
    inplace = times[1] * 1e-6 if times[1] else None
    count, printed = whole_number(entry.get("count"), _SIZE), tuple(_side(side) for side in sides)
    return SizeRow(size, first * 1e-6, inplace, count, buses[0], buses[1], sides=printed)


def _side(entry: dict[str, Any]) -> Side:
    """Return a run as it is written, under whichever names: microseconds and GB/s."""
    lower = {key.lower().replace("_", ""): value for key, value in entry.items()}
    told = [lower.get("time", lower.get("cputime")), lower.get("algbw"), lower.get("busbw")]
    wrong = _positive(lower.get("nwrong", lower.get("wrong")))
    time, algorithm, bus = (str(value) if _positive(value) else "" for value in told)
    return Side(time, algorithm, bus, "" if wrong is None else f"{wrong:.0f}")


def _reports(entries: list[dict[str, Any]], name: str) -> list[NcclTestsTable]:
    """Return a table per operation, ranks, kernel and type of rows in the style of rccl-tests and mscclpp."""
    by_table: dict[tuple[Any, ...], list[tuple[bool, SizeRow]]] = {}
    for entry in entries:
        size, time = whole_number(entry.get("size"), _SIZE), _positive(entry.get("time"))
        if size is None or size < 0 or time is None:
            continue
        ranks, per_node = (whole_number(entry.get(key), 1 << 24) or 0 for key in ("ranks", "ranksPerNode"))
        nodes = whole_number(entry.get("nodes"), 1 << 24) or (ranks // per_node if per_node else 0)
        key = (str(entry.get("name", "")), ranks, nodes, str(entry.get("kernel", "")), str(entry.get("type", "")))
        bus = _positive(entry.get("busBw", entry.get("busbw")))
        is_inplace = str(entry.get("inPlace", entry.get("inplace", "0"))).lower() in ("1", "true")
        by_table.setdefault(key, []).append(
            (is_inplace, SizeRow(size, time * 1e-6, None, None, bus, sides=(_side(entry),)))
        )
    tables = []
    for (spelled, ranks, nodes, kernel, dtype), rows in by_table.items():
        facts = {"kernel": kernel} if kernel else {}
        title = f"{name} kernel {kernel}" if kernel else name
        tables.append(NcclTestsTable(op_in(spelled), _paired(rows), title, ranks, nodes, dtype=dtype, facts=facts))
    return tables


def _paired(rows: list[tuple[bool, SizeRow]]) -> tuple[SizeRow, ...]:
    """Join in-place rows to the out-of-place rows of their size."""
    inside = {row.size_bytes: row for is_inplace, row in rows if is_inplace}
    outside = [row for is_inplace, row in rows if not is_inplace]
    if not outside:
        return tuple(inside.values())
    joined = []
    for row in outside:
        other = inside.get(row.size_bytes)
        if other is None:
            joined.append(row)
            continue
        runs = (*row.sides, *other.sides)
        joined.append(replace(row, inplace_s=other.time_s, inplace_busbw_gbs=other.busbw_gbs, sides=runs))
    return tuple(joined)


def _superbench(document: Any, name: str) -> list[NcclTestsTable]:
    """Return the tables of superbench results, one per node, setting and operation."""
    tables: dict[tuple[str, ...], dict[int, dict[str, float]]] = {}
    node = str(document.get("node", "")) if isinstance(document, dict) else ""
    for key, value in _flat(document, "", 0):
        match = _SUPERBENCH.match(key)
        number = _positive(value[0] if isinstance(value, list) and value else value)
        if match is None or number is None:
            continue
        label = (node, match["bench"], match["setting"] or "", match["extra"] or "", match["op"])
        tables.setdefault(label, {}).setdefault(int(match["size"][:18]), {})[match["what"]] = number
    return [
        _superbench_table(name, label, sizes)
        for label, sizes in tables.items()
        if any("time" in s for s in sizes.values())
    ]


def _flat(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or depth > MOST_DEPTH:
        if path:
            yield path, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{path}/{key}" if path else str(key), depth + 1)


def _superbench_table(name: str, label: tuple[str, ...], sizes: dict[int, dict[str, float]]) -> NcclTestsTable:
    node, bench, setting, extra, op = label
    rows = tuple(
        SizeRow(size, values["time"] * 1e-6, None, None, values.get("busbw"), sides=(_side(dict(values)),))
        for size, values in sorted(sizes.items())
        if "time" in values
    )
    title = "/".join(part for part in (name, node, bench, setting, extra) if part)
    hosts = {0: node} if node else {}
    return NcclTestsTable(op_in(op), rows, title, 0, 1 if node else 0, facts={"benchmark": "superbench"}, hosts=hosts)


def csv_tables(data: bytes, name: str) -> list[NcclTestsTable]:
    """Return the tables of a CSV with columns size or bytes, and time or time_us; NoBenchError where there are none."""
    lines = io.StringIO(data.decode("utf-8-sig", "replace"), newline="")
    try:
        rows = [
            {(key or "").strip().lower(): value for key, value in row.items() if key} for row in csv.DictReader(lines)
        ]
    except csv.Error as error:
        raise NoBenchError(f"no CSV: {error}") from error
    by_title: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        size, time = row.get("size", row.get("bytes")), row.get("time", row.get("time_us"))
        entry = row | {"size": (size or "").strip(), "time": (time or "").strip(), "inPlace": row.get("inplace")}
        entry |= {"ranksPerNode": row.get("rankspernode"), "name": row.get("name") or row.get("case") or name}
        by_title.setdefault(str(entry["name"]), []).append(entry)
    tables = []
    for title, entries in by_title.items():
        shown = f"{name}:{title}" if title != name else name
        tables += [_renamed(table, shown, title) for table in _reports(entries, name)]
    if not any(table.rows for table in tables):
        raise NoBenchError("CSV without columns size (or bytes) and time (or time_us)")
    return tables


def _renamed(table: NcclTestsTable, shown: str, title: str) -> NcclTestsTable:
    return NcclTestsTable(
        table.op or op_in(title), table.rows, shown, table.ranks, table.nodes, dtype=table.dtype, facts=table.facts
    )
