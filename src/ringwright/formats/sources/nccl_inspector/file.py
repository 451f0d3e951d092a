"""One Inspector file, read: its calls as a table, and what all its records say of ranks, groups and losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args, get_type_hints

import msgspec
import polars as pl

from ringwright.formats.sources.nccl_inspector import records
from ringwright.formats.sources.nccl_inspector.records import InspectorCall, ObjectCutter, RecordContext, RecordOrigin

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

BATCH = 50_000  # calls that are put into a table together
PER_RANK = ("all-gather", "reduce-scatter")
LOST = ("coll", "p2p", "proxy")
_COLUMNS = {name: get_args(kind)[0] if get_args(kind) else kind for name, kind in get_type_hints(InspectorCall).items()}


@dataclass
class ObjectCount:
    """How many objects of a file had one outcome, and where the first of them is."""

    line: int
    example: str | None
    count: int = 0


@dataclass
class InspectorFile:
    """What one file holds. ``calls`` has the fields of :class:`InspectorCall`."""

    calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_COLUMNS))
    origins: list[RecordOrigin] = field(default_factory=list)  # each once, as they came
    names: dict[str, str] = field(default_factory=dict)  # of communicators, as last told
    ledger: dict[tuple[str, str], ObjectCount] = field(default_factory=dict)  # by outcome and reason
    timing: dict[str, int] = field(default_factory=Counter)
    unknown: dict[str, int] = field(default_factory=Counter)  # keys that no release is known to print
    dropped: dict[tuple[str, int, str], int] = field(default_factory=dict)  # by communicator, rank in it, and kind
    off: int = 0  # records whose printed bandwidth is not size over time


def read_file(source: Source, progress: Callable[[int], None] | None = None) -> InspectorFile:
    """Return what an Inspector file holds; what is no record is counted in its ledger."""
    reading = InspectorReading()
    for line in records.lines(source):
        if progress is not None:
            progress(len(line))
        reading.take(line)
    reading.end()
    return reading.whole()


class InspectorReading:
    """A file on its way to :class:`InspectorFile`, line by line."""

    def __init__(self) -> None:
        self._cutter, self._context = ObjectCutter(), RecordContext()
        self._file = InspectorFile()
        self._origins: dict[RecordOrigin, int] = {}
        self._batch: list[InspectorCall] = []

    def take(self, line: bytes) -> None:
        """Take the next line."""
        for first, data in self._cutter.take(line):
            self._object(first, data)

    def end(self) -> None:
        """Take what was not finished: nothing more comes."""
        for first, data in self._cutter.rest():
            self._object(first, data)

    def whole(self) -> InspectorFile:
        """Return what has been taken so far."""
        self._flush()
        self._file.origins = [*self._origins]
        return self._file

    def _flush(self) -> None:
        self._file.calls = pl.concat([self._file.calls, pl.DataFrame(self._batch, schema=_COLUMNS, orient="row")])
        self._batch = []

    def _object(self, line: int, data: bytes) -> None:
        """Take one object, which begins on a line."""
        try:
            record = msgspec.json.decode(data)
            reason = self._record(record, line) if isinstance(record, dict) else "no object"
        except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
            reason = f"damaged record: {str(error)[:80]}"
        if reason:
            outcome = "other" if reason.startswith("proxy") else "refused"
            self._count(outcome, reason, line, data[:200].decode("utf-8", "replace"))

    def _count(self, outcome: str, reason: str, line: int, example: str | None = None) -> None:
        self._file.ledger.setdefault((outcome, reason), ObjectCount(line, example)).count += 1

    def _record(self, record: Mapping[str, object], line: int) -> str:
        """Take one record; return why it was not understood, or nothing."""
        origin = self._context.origin(record)
        if isinstance(origin, str):
            return origin
        numbered = self._origins.setdefault(origin, len(self._origins))
        if origin.name:
            self._file.names[origin.communicator] = origin.name
        stats = record.get("dump_stats")
        if isinstance(stats, dict):
            self._stats(origin, stats)
            self._count("understood", "statistics of a dump", line)
            return ""
        if "proxy_trace" in record:
            return "proxy records are counted, not read"
        for prefix in records.CALLS:
            perf = record.get(f"{prefix}_perf")
            if isinstance(perf, dict):
                return self._operation(perf, origin, records.call(perf, prefix, numbered, line))
        return "neither coll_perf nor p2p_perf"

    def _stats(self, origin: RecordOrigin, stats: Mapping[str, object]) -> None:
        dropped = self._file.dropped
        for kind in LOST:
            key = (origin.communicator, origin.rank, kind)
            dropped[key] = max(dropped.get(key, 0), records.whole(stats.get(f"{kind}_dropped_total")) or 0)

    def _operation(self, perf: Mapping[str, object], origin: RecordOrigin, made: InspectorCall | None) -> str:
        if made is None:
            return "an operation without size"
        self._file.timing[made.timing] += 1
        for key in records.unknown_keys(perf, made.prefix) if made.extra else ():
            self._file.unknown[key[:64]] += 1
        total = made.size_bytes * (origin.nranks if made.op in PER_RANK else 1)
        told = (records.bounded(perf.get(f"{made.prefix}_{key}")) for key in ("exec_time_us", "algobw_gbs"))
        self._file.off += _is_off(total, *told)
        self._batch.append(made)
        if len(self._batch) >= BATCH:
            self._flush()
        self._count("understood", f"{made.prefix}_perf record", made.line)
        return ""


def _is_off(total_bytes: int, time_us: float | None, printed_gbs: float | None) -> bool:
    """Whether a printed bandwidth is not size over time: a sign that the convention of sizes is another."""
    if not time_us or not printed_gbs or time_us < 100:
        return False
    return abs(total_bytes / time_us / 1e3 / printed_gbs - 1) > 0.02
