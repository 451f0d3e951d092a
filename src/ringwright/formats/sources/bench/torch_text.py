"""What torch all-reduce benchmarks print (BigScience, ml-engineering): payload, time, and bandwidth in Gbit/s or GB/s.

The first generation prints per trial and rank ``duration``, ``algo throughput`` and ``busbw`` in Gbit/s, where the
throughput counts the payload TWICE: payload = throughput x duration / 16 and busbw / throughput = (p-1)/p. Later ones
print one line a payload. Sources: bigscience-workshop/bigscience and stas00/ml-engineering, ``all_reduce_bench.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ringwright.formats.sources.launchers import plain
from ringwright.formats.sources.tables.nccl_tests_table import NcclTestsTable, SizeRow

_RANK = re.compile(r"^\s*(\d{1,6}):\s*$")
_DURATION = re.compile(r"duration:\s*([\d.]+)\s*sec")
_THROUGHPUT = re.compile(r"algo throughput:\s*([\d.]+)\s*bps")
_BUS = re.compile(r"\bbusbw:\s*([\d.]+)\s*Gbps")
_HEADING = re.compile(r"bandwidth of all_reduce over (\d{1,7}) ranks")
_CELL = re.compile(r"\|\s*(\d+(?:\.\d+)?)\s*([KMGT]?)iB\s*\|\s*([\d.]+)\s*GBps\s*\|\s*([\d.]+)\s*GBps")
_ONE = re.compile(r"bandwidth of all_reduce with a ([\d.]+)\s*(GiB|GB) payload \(\d+ trials, (\d{1,7}) ranks\)")
_ALGORITHM = re.compile(r"\balgbw:\s*([\d.]+)\s*GBps")
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class _Reader:
    """What has been read so far."""

    def __init__(self) -> None:
        self.trials: Counter[int] = Counter()
        self.rank = -1
        self.duration = self.throughput = 0.0
        self.found: dict[int, list[tuple[float, float, float]]] = {}  # trial -> (seconds, bit/s, Gbit/s of the bus)
        self.rows: list[SizeRow] = []
        self.ranks = 0
        self.payload = 0.0

    def line(self, line: str) -> None:
        """Read one line."""
        rank = _RANK.match(line)
        if rank:
            self.rank = int(rank[1])
        for pattern, name in ((_DURATION, "duration"), (_THROUGHPUT, "throughput")):
            match = pattern.search(line)
            if match:
                setattr(self, name, _number(match[1]))
        bus = _BUS.search(line)
        if bus and self.duration > 0 and self.throughput > 0:
            trial = self.trials[self.rank]
            self.trials[self.rank] += 1
            self.found.setdefault(trial, []).append((self.duration, self.throughput, _number(bus[1])))
            self.duration = self.throughput = 0.0
        self._later(line)

    def _later(self, line: str) -> None:
        heading, cell, one, algorithm = (p.search(line) for p in (_HEADING, _CELL, _ONE, _ALGORITHM))
        self.ranks = int(heading[1]) if heading else self.ranks
        if one:
            self.ranks, self.payload = int(one[3]), _number(one[1]) * (1e9 if one[2] == "GB" else 1 << 30)
        if cell and _number(cell[4]) > 0:
            size = round(_number(cell[1]) * _UNIT[cell[2]])
            self.rows.append(SizeRow(size, size / _number(cell[4]) / 1e9, None, None, _number(cell[3])))
        if algorithm and self.payload > 0 and _number(algorithm[1]) > 0:
            size = round(self.payload)
            self.rows.append(SizeRow(size, size / _number(algorithm[1]) / 1e9))
            self.payload = 0.0


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 < value < 1e18 else 0.0


def torch_tables(lines: Iterable[str], name: str) -> list[NcclTestsTable]:
    """Return at most two tables: the trials of the first generation, and the averages of later ones."""
    reader = _Reader()
    for line in lines:
        reader.line(line if _RANK.match(line) else plain(line))
    tables = []
    if reader.found:
        tables.append(_trials(reader, name))
    if reader.rows:
        tables.append(
            NcclTestsTable("all-reduce", tuple(reader.rows), name, reader.ranks, facts={"benchmark": "torch"})
        )
    return tables


def _trials(reader: _Reader, name: str) -> NcclTestsTable:
    """Return one row a trial; its time is that of the rank that waited least, so no one's waiting is inside."""
    samples = [sample for trial in reader.found.values() for sample in trial]
    share = sum(bus * 1e9 / throughput for _, throughput, bus in samples) / len(samples)
    ranks = round(1 / (1 - share)) if 0 < share < 1 else 0
    rows = []
    for _, trial in sorted(reader.found.items()):
        seconds, throughput, _ = min(trial)
        size = throughput * seconds / 16
        rows.append(SizeRow(_rounded(size), seconds))
    facts = {"benchmark": "torch", "ranks in each trial": str(max(len(trial) for trial in reader.found.values()))}
    facts["warm-up"] = "none: the first trial holds what a first call costs"
    return NcclTestsTable("all-reduce", tuple(rows), name, ranks, facts=facts)


def _rounded(size: float) -> int:
    """Return the payload; the printed time has four digits, so only the first three of the size are sure."""
    unit: int = 10 ** max(len(str(int(size))) - 3, 0)
    return round(size / unit) * unit
