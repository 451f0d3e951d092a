"""Tables of UCC's own benchmark, ``ucc_perftest``: one collective, times of the ranks, and with ``-F`` bandwidths.

Sizes are those of one rank's part of an all-gather, gather or scatter and of one pair of an all-to-all. How many ranks took
part is not printed; bandwidths tell it, as they count the n-1 parts that come from others. Source: ``tools/perf`` of
openucx/ucc.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.formats.sources.bench.reader import read_printed
from ringwright.formats.sources.tables.printed_tables import (
    NumberRow,
    TableTool,
    TimedTable,
    TitledRows,
    is_per_rank,
    op_of,
)

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

_COLUMNS = re.compile(r"\s*avg\s+min\s+max(?P<rates>\s+avg\s+max\s+min)?\s*")
_NAMES = ("Count", "Size", "avg (us)", "min (us)", "max (us)")
_RATES = ("avg (GB/s)", "max (GB/s)", "min (GB/s)")
_MOST_OFF = 0.02  # of a number of ranks, by rounding


def _columns(line: str) -> tuple[str, ...]:
    match = _COLUMNS.fullmatch(line)
    return () if match is None else (*_NAMES, *(_RATES if match["rates"] else ()))


def _timed(row: NumberRow) -> tuple[int | None, float | None]:
    time_us = row.number("avg (us)")
    return row.size("Size"), time_us * 1e-6 if time_us is not None else None


def _table(state: TitledRows) -> TimedTable:
    op = op_of(state.heading)
    is_part = is_per_rank(op)
    ranks = int(state.facts.get("ranks", "0"))
    if not ranks and is_part:
        ranks = _ranks_told(state.rows)
    return TimedTable(op, ranks, _timed, is_part, rate="" if is_part else "avg (GB/s)")


def _ranks_told(rows: list[NumberRow]) -> int:
    """Return one more than the parts that bandwidths count, 0 where digits leave it open."""
    for row in sorted(rows, key=lambda row: -(row.number("avg (GB/s)") or 0)):
        size, rate, time_us = row.size("Size"), row.number("avg (GB/s)"), row.number("avg (us)")
        if not size or rate is None or time_us is None:
            return 0
        parts = rate * time_us * 1e3 / size
        if parts < 1 << 20 and abs(parts - round(parts)) < _MOST_OFF and 0.005 / rate * parts < 0.5:
            return round(parts) + 1
        return 0
    return 0


_SAID: Callable[[str], re.Pattern[str]] = lambda name: re.compile(rf"^\s*{name}:\s+(\S+)\s*$")  # noqa: E731
TOOL = TableTool(
    re.compile(r"^\s*Collective:\s+(?P<title>[A-Za-z][\w-]{0,60})"),
    _columns,
    (("memory", _SAID("Memory type")), ("datatype", _SAID("Datatype")), ("reduction", _SAID("Reduction"))),
    _table,
)


def read_ucc(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the measurements of UCC's benchmark; InputError where no file holds a row."""
    remedy = "give what ucc_perftest prints, from the line 'Collective:' on"
    return read_printed("ucc", TOOL, sources, remedy, progress)
