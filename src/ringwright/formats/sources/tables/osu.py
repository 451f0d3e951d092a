"""Tables of the OSU micro-benchmarks: collectives, pairs of ranks, one-sided; blocking and not, of host and of GPU memory.

Sizes are those of one rank's part of an all-gather, gather or scatter, and of one pair of an all-to-all; the whole follows
where the line that started the ranks tells how many there are, which the tables never do. Bandwidths are in 10^6 B/s. What is
not blocking has as its time that of the communication alone, "Pure Comm.". Source: ``c/util/osu_util.c`` and
``osu_util_mpi.c`` of releases 3 to 7.
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
    r"\bSize\b|\bIterations\b|\bValidation\b|\bTransmit Size\b|\bMessages/s\b|\bMB/s(?!\))"
    r"|(?:\b(?:P\d{1,3} Tail|Avg|Min|Max|Coll\.|Pure|Wait|Init) )?\b[\w.]+ ?\((?:us|MB/s|%)\)"
)
_TIMES = ("Avg Latency(us)", "Latency (us)", "Latency(us)", "Pure Comm.(us)", "Wait avg(us)")
_RATES = {"Bandwidth (MB/s)": 1e6, "Bandwidth(MB/s)": 1e6, "MB/s": 1e6}  # B/s
_OF_PAIRS = {"Latency (us)", *_RATES}  # columns that no collective has
_ONE_SIDED = (("put", "send"), ("get", "recv"))


def _table(state: TitledRows) -> TimedTable:
    """Return what a benchmark is: a collective of all ranks, or of pairs of ranks, of which most tests have one."""
    words, facts = state.heading.lower(), _library(state.heading)
    ranks, pairs = (int(state.facts.get(name, "0")) for name in ("ranks", "pairs"))
    op = op_of(words)
    if op or not (state.title or _OF_PAIRS & {*state.columns}):
        return TimedTable(op, ranks, timed_by("Size", _TIMES, _RATES, 1), is_per_rank(op), facts=facts)
    ranks = 2 * (pairs or 1) if pairs or not words.startswith("multi ") else ranks
    op = next(
        (op for word, op in _ONE_SIDED if f"mpi_{word} " in words), "" if words.startswith("mpi_") else "send-recv"
    )
    both = 2 if "bi-directional" in words else 1
    if both == 2:
        facts["bandwidth as printed"] = "both directions together"
    if pairs > 1:
        facts["bandwidth as printed"] = f"{pairs} pairs together"
    return TimedTable(op, ranks, timed_by("Size", _TIMES, _RATES, both * (pairs or 1)), facts=facts)


def _library(title: str) -> dict[str, str]:
    named = next((name for name in ("RCCL", "NCCL") if title.startswith(name)), "")
    return {"library": named.lower()} if named else {}


TOOL = TableTool(
    re.compile(r"#\s*OSU (?:MPI(?:-\w+)? )?(?P<title>[A-Za-z][^\n]{0,100}? [Tt]est)\b"),
    lambda line: column_names(_COLUMN, line),
    (
        ("osu release", re.compile(r"#\s*OSU .* [Tt]est v(\d[\w.]*)")),
        ("device", re.compile(r"#\s*OSU \w+-(CUDA|ROCM|OPENACC|SYCL|HPU)\b")),
        ("datatype", re.compile(r"#\s*Datatype: (\w+)")),
        ("pairs", re.compile(r"\[ pairs: (\d{1,6}) \]")),
        ("buffers", re.compile(r"#\s*(Send Buffer on .{1,60})")),
        ("window", re.compile(r"#\s*Window creation: (\w+)")),
        ("synchronization", re.compile(r"#\s*Synchronization: (\S+)")),
    ),
    _table,
)


def read_osu(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the measurements of OSU's tables; InputError where none holds a row."""
    return read_printed(
        "osu", TOOL, sources, "give what osu_allreduce and its kin print, title and column names too", progress
    )
