"""Tables of the Intel MPI Benchmarks: IMB-MPI1, -NBC, -RMA and -EXT, many benchmarks and numbers of ranks in one output.

Sizes are those of one rank's part of an all-gather, gather, scatter and scatter of blocks, and of one pair of an all-to-all;
the whole follows from the printed number of processes. The time is that of the slowest process, of which the printed rate is
made: it counts 10^6 B/s and both directions of a Sendrecv, all four messages of an Exchange. Source: ``src_c/IMB_output.c``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.formats.sources.bench.reader import read_printed
from ringwright.formats.sources.tables.printed_tables import (
    TableTool,
    TimedTable,
    TitledRows,
    column_names,
    is_per_rank,
    op_of,
    timed_by,
)

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

_COLUMN = re.compile(
    r"\bGroup\b|#bytes\b|#repetitions\b|\bt(?:_\w+)?\[usec\]|\bMbytes/sec\b|\bMsg/sec\b|\boverlap\[%\]|\bdefects\b"
)
_TIMES = ("t_max[usec]", "t[usec]", "t_pure[usec]", "t_avg[usec]")
_RATES = {"Mbytes/sec": 1e6}  # B/s
_PAIRS = ("pingpong", "pingping", "sendrecv", "exchange", "uniband", "biband")
_SENT = {
    "sendrecv": "2 messages",
    "exchange": "4 messages",
    "biband": "both directions of all pairs",
    "uniband": "all pairs",
}


def _table(state: TitledRows) -> TimedTable:
    """Return what a benchmark is, of the processes that its head names; of several groups all have as many."""
    words = state.heading.lower().removeprefix("multi-")
    ranks = int(state.facts.get("groups of", "") or state.facts.get("ranks printed", "0"))
    pair = next((name for name in _PAIRS if words.startswith(name)), "")
    if pair:
        streams = max(ranks // 2, 1) * (2 if pair == "biband" else 1) if "band" in pair else 1
        said = f"of {_SENT[pair]}" if pair in _SENT else ""
        return TimedTable(
            "send-recv",
            ranks,
            timed_by("#bytes", _TIMES, _RATES, streams),
            facts={"bandwidth as printed": said} if said else {},
        )
    op = op_of(words)
    return TimedTable(op, ranks, timed_by("#bytes", _TIMES, _RATES, 1), is_per_rank(op) or "scatter_block" in words)


TOOL = TableTool(
    re.compile(r"#\s*Benchmarking (?P<title>[A-Za-z][\w-]{0,60})"),
    lambda line: column_names(_COLUMN, line),
    (
        ("ranks printed", re.compile(r"#\s*#processes = (\d{1,7})")),
        ("groups of", re.compile(r"groups? of (\d{1,7}) processes each")),
        ("mode", re.compile(r"#\s*MODE: ([\w-]+)")),
        ("waiting processes", re.compile(r"\( (\d{1,7}) additional processes waiting")),
    ),
    _table,
)


def read_imb(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the measurements of IMB's tables; InputError where none holds a row."""
    remedy = "give what IMB-MPI1 and its kin print, the line 'Benchmarking' and the column names too"
    return read_printed("imb", TOOL, sources, remedy, progress)
