"""Which of TraceLens' tables a file is, its rows, and what their fields mean.

Source: ``NcclAnalyser`` of ``TraceLens/NcclAnalyser/nccl_analyser.py``: times in microseconds, MB of 2^20 bytes, elements
handed in and out as the profiler recorded them.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from ringwright.formats.sources.c10d import CallSizes, operation, sizes
from ringwright.formats.sources.datatypes import BYTES, datatype
from ringwright.formats.sources.reader_rows import MOST_MEMBERS

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

MOST_ROWS = 2_000_000
MOST_COLUMNS = 1 << 16
MOST_US = 1e12
_MOST_ELEMENTS = 1 << 48
_MOST_RANK = 1 << 24
_MB = 1 << 20
_CUT = 3e-3  # how far a mean times a count may be off the sum
_OF_RANK = re.compile(r"rank_(\d{1,8})_dur")
_RANKS = re.compile(r"\d{1,9}")
Fields = dict[str, str]


class Grain(IntEnum):
    """What a row of a table is; of two tables of one report the more detailed tells the times."""

    STRAGGLERS = 0  # what a rank waited, all in all
    SUMMARY = 1  # a kind of collective
    COLLECTIVE = 2  # one collective of all its ranks
    OF_RANK = 3  # a kind of collective on one rank
    RANKS = 4  # one collective, with columns for each rank
    CALL = 5  # one collective on one rank


@dataclass
class Table:
    """A file: where it lies, what its rows are, and of wide tables the ranks that have columns."""

    name: str
    data: bytes
    header: list[str]
    grain: Grain
    ranks: list[int]

    @property
    def folder(self) -> str:
        """Tables of one report lie in one folder."""
        return re.split(r"[/\\!:][^/\\!:]*$", self.name)[0] if re.search(r"[/\\!:]", self.name) else ""

    def rows(self) -> Iterator[tuple[int, Fields | str]]:
        """Yield line and fields by column, or what is wrong with the line."""
        rows = _parsed(self.data)
        next(rows)
        for count in range(MOST_ROWS + 1):
            line = rows.line_num + 1
            try:
                fields = next(rows, None)
            except csv.Error as error:
                yield line, f"no CSV: {str(error)[:80]}"
                continue
            if fields is None:
                return
            if count == MOST_ROWS:
                yield line, f"rows beyond {MOST_ROWS:,}"
            elif len(fields) == len(self.header):
                yield line, dict(zip(self.header, fields, strict=True))
            elif fields:
                yield line, "a row with more or fewer values than columns"


def _parsed(data: bytes) -> CsvReader:
    lines = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", "replace", newline="")
    return csv.reader(line.replace("\0", "\ufffd") for line in lines)


def table(name: str, data: bytes) -> Table | None:
    """Return the table of a file, None where its columns are those of no such table."""
    try:
        header = next(_parsed(data), [])
    except csv.Error:
        return None
    grain = _grain(set(header)) if len(header) <= MOST_COLUMNS else None
    if grain is None:
        return None
    ranks = {int(m[1]) for column in header if (m := _OF_RANK.fullmatch(column)) and int(m[1]) < _MOST_RANK}
    return Table(name, data, header, grain, sorted(ranks))


def _grain(columns: set[str]) -> Grain | None:
    if {"rank", "total_wait_time_us", "times_arrived_last"} <= columns:
        return Grain.STRAGGLERS
    if "Collective name" not in columns:
        return None
    if {"rank", "ts", "dur"} <= columns:
        return Grain.CALL
    if any(_OF_RANK.fullmatch(column) for column in columns):
        return Grain.RANKS
    if {"rank", "dur_mean", "operation_count"} <= columns:
        return Grain.OF_RANK
    if "comm_latency" in columns or "wall_time (us)" in columns:
        return Grain.COLLECTIVE
    is_summary = "count" in columns and columns & {"comm_latency_mean", "wall_time (us)_mean"}
    return Grain.SUMMARY if is_summary else None


def number(text: str | None) -> float | None:
    """Return a finite number, None for an empty one, ``nan`` and what is none."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def integer(text: str | None, most: int) -> int | None:
    """Return a number from 0 to ``most``; pandas writes 8 as 8.0 in a column that has empty fields."""
    value = number(text)
    return int(value) if value is not None and value.is_integer() and 0 <= value <= most else None


def microseconds(text: str | None) -> float | None:
    """Return how long something took, in seconds; None for what is no such time."""
    value = number(text)
    return value * 1e-6 if value is not None and 0 < value < MOST_US else None


def no_time(text: str | None) -> str:
    """Return how a duration in microseconds breaks the law of times; empty where it is one."""
    return "" if microseconds(text) is not None else "a duration that is none"


def rank(fields: Fields) -> int | None:
    """Return the rank of a row."""
    return integer(fields.get("rank"), _MOST_RANK)


@dataclass(frozen=True, slots=True)
class Call:
    """What a row says of the call, on one rank where it has columns for each."""

    op: str
    name: str
    group: str | None
    members: tuple[int, ...]
    size: int | None  # of the group
    dtype: str | None
    count: int | None
    sizes: CallSizes


def call(fields: Fields, of_rank: int | None = None) -> Call:
    """Return operation, group and sizes."""

    def value_of(column: str) -> str | None:
        own = fields.get(f"rank_{of_rank}_{column}") if of_rank is not None else None
        return own or fields.get(column)

    name = fields.get("Collective name", "")
    op = operation(name) or "unknown"
    members = _members(fields.get("Process Group Ranks", ""))
    size = integer(fields.get("Group size"), MOST_MEMBERS) or len(members) or None
    dtype = datatype(fields["dtype"]) if fields.get("dtype") else None
    width = BYTES.get(dtype or "")
    counts = [integer(value_of(f"{side} msg nelems"), _MOST_ELEMENTS) for side in ("In", "Out")]
    inside, outside = (
        count * width
        if count is not None and width
        else _megabytes(value_of(f"{side} msg size (MB)") or fields.get(f"{side} msg size (MB)_first"))
        for count, side in zip(counts, ("In", "Out"), strict=True)
    )
    full = _megabytes(fields.get("Full msg size (MB)"))
    inside, outside = (inside, outside or full) if op == "all-gather" else (inside or full, outside)
    group = fields.get("Process Group Name") or None
    known = members if size == len(members) else ()
    held = sizes(op, inside, outside, size)
    return Call(op, name, group if group != "Unknown_Group" else None, known, size, dtype, counts[0], held)


def _members(text: str) -> tuple[int, ...]:
    """Return the ranks of ``[0, 1]``; of ``[0, 1, ..., 63]`` none, as it does not say all."""
    ranks = tuple(int(each) for each in _RANKS.findall(text)) if "..." not in text else ()
    return ranks if len(set(ranks)) == len(ranks) <= MOST_MEMBERS and max(ranks, default=0) < _MOST_RANK else ()


def _megabytes(text: str | None) -> int | None:
    value = number(text)
    return round(value * _MB) if value is not None and 0 <= value < _MOST_ELEMENTS else None


def contradiction(fields: Fields) -> str | None:
    """Return in which way a row of a summary contradicts itself, None where it does not."""
    mean, count = number(fields.get("dur_mean", fields.get("comm_latency_mean"))), number(_count(fields))
    total = number(fields.get("dur_sum"))
    in_ms = number(fields.get("Total comm latency (ms)"))
    total = in_ms * 1e3 if total is None and in_ms is not None else total
    if mean is not None and count is not None and total is not None and abs(mean * count - total) > _CUT * abs(total):
        return f"mean {mean:.6g} us times {count:.6g} is not the sum, {total:.6g} us"
    least, most = number(fields.get("dur_min")), number(fields.get("dur_max"))
    if mean is not None and least is not None and most is not None and not least * 0.999 <= mean <= most * 1.001:
        return f"the mean {mean:.6g} us is not between {least:.6g} and {most:.6g}"
    return None


def times(fields: Fields) -> int | None:
    """Return how many calls a row of a summary stands for."""
    return integer(_count(fields), 1 << 40) or None


def _count(fields: Fields) -> str | None:
    return fields.get("operation_count", fields.get("count"))
