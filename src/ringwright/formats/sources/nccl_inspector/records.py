"""What an Inspector file holds: JSON objects, the header that says whose they are, and one call in each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ringwright.costs.nccl.names import printed_algorithm, printed_protocol
from ringwright.formats.sources.nccl_functions import OPS
from ringwright.formats.sources.source import is_damage

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

MOST_RECORD_BYTES = 8 << 20
MOST_RANKS = 1 << 24
MOST_KERNELS = 4096  # of a verbose record that are looked at
CALLS = ("coll", "p2p")  # what the keys of a call begin with
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]]')  # an open string ends with the line: no second look
_KNOWN = frozenset(
    "algo proto sn msg_size_bytes exec_time_us timing_source algobw_gbs busbw_gbs peer event_trace_sn event_trace_ts".split()
)


# ------------------------------------------------------------------------------------------------------ objects of a file
class ObjectCutter:
    """Cuts lines, as they come, into objects."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._size = self._depth = self._first = self._number = 0

    def take(self, line: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the line where an object begins, and its bytes, once this line ends it."""
        self._number += 1
        if self._held and line.startswith(b"{"):
            yield from self.rest()  # the object before was cut
        if not self._held:
            if not line.strip():
                return
            self._first = self._number
        self._depth += sum(1 if t in (b"{", b"[") else -1 for t in _TOKENS.findall(line) if t[:1] != b'"')
        self._size += len(line)
        self._held.append(line[:MOST_RECORD_BYTES])
        if self._depth <= 0 or self._size > MOST_RECORD_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is held, an unfinished object."""
        if self._held:
            held, self._held, self._size, self._depth = self._held, [], 0, 0
            yield self._first, b"".join(held)


def lines(source: Source) -> Iterator[bytes]:
    """Yield the lines of a source, long ones in pieces; where it is damaged it ends, and that is noted among its losses."""
    read = 0
    with source.open() as stream:
        while True:
            try:
                line = stream.readline(MOST_RECORD_BYTES) if hasattr(stream, "readline") else b""
            except Exception as error:
                if not is_damage(error):
                    raise
                source.losses.append((f"input damaged, rest not read: {type(error).__name__}", read))
                return
            if not line:
                return
            read += len(line)
            yield line


# -------------------------------------------------------------------------------------------------------- whose they are
class RecordOrigin(NamedTuple):
    """Who wrote a record: a rank of a communicator, and the process that is this rank."""

    communicator: str
    name: str
    rank: int
    nranks: int
    nnodes: int | None
    host: str
    pid: int | None
    version: str


class RecordContext:
    """The last header and metadata of a file: a record without its own is of those that came before it."""

    def __init__(self) -> None:
        self._header: Mapping[str, object] | None = None
        self._metadata: Mapping[str, object] = {}

    def origin(self, record: Mapping[str, object]) -> RecordOrigin | str:
        """Return who wrote a record, or why that is not known."""
        header, metadata = record.get("header"), record.get("metadata")
        if isinstance(header, dict):
            self._header = header
        if isinstance(metadata, dict):
            self._metadata = metadata
        return "a record before any header" if self._header is None else _origin(self._header, self._metadata)


def _origin(header: Mapping[str, object], metadata: Mapping[str, object]) -> RecordOrigin | str:
    communicator, rank, nranks = str(header.get("id", ""))[:64], whole(header.get("rank")), whole(header.get("n_ranks"))
    if not communicator or rank is None or nranks is None or not 0 <= rank < nranks <= MOST_RANKS:
        return "a header without id, rank and n_ranks"
    name = header.get("comm_name")
    return RecordOrigin(
        communicator,
        name[:256] if isinstance(name, str) and name != "unknown" else "",
        rank,
        nranks,
        whole(header.get("nnodes")),
        str(metadata.get("hostname", ""))[:256],
        whole(metadata.get("pid")),
        str(metadata.get("inspector_output_format_version", "unknown"))[:16],
    )


# --------------------------------------------------------------------------------------------------------------- one call
class InspectorCall(NamedTuple):
    """One collective, send or receive as a rank tells it; times of day in microseconds."""

    prefix: str
    op: str
    size_bytes: int
    duration_s: float | None
    sequence: int | None
    peer: int | None
    algorithm: str | None
    protocol: str | None
    timing: str
    called_us: float | None
    started_us: float | None
    extra: str  # what no release is known to print, as JSON behind a blank
    origin: int  # its number in the file
    line: int


def call(perf: Mapping[str, object], prefix: str, origin: int, line: int) -> InspectorCall | None:
    """Return the call of a ``coll_perf`` or ``p2p_perf`` object, None where it has no size."""
    size = whole(perf.get(f"{prefix}_msg_size_bytes"))
    if size is None or size < 0:
        return None
    time_us = bounded(perf.get(f"{prefix}_exec_time_us"))
    called_us, started_us = _times(perf.get("event_trace_ts"), prefix)
    extra = {key: perf[key] for key in unknown_keys(perf, prefix)}
    return InspectorCall(
        prefix,
        OPS.get(str(perf.get(prefix)), "unknown"),
        size,
        time_us / 1e6 if time_us is not None and time_us >= 0 else None,
        whole(perf.get(f"{prefix}_sn")),
        whole(perf.get("p2p_peer")),
        _name(perf.get(f"{prefix}_algo"), printed_algorithm),
        _name(perf.get(f"{prefix}_proto"), printed_protocol),
        str(perf.get(f"{prefix}_timing_source", "unsaid"))[:32],
        called_us,
        started_us,
        " " + json.dumps(extra, default=str)[:1000] if extra else "",
        origin,
        line,
    )


def unknown_keys(perf: Mapping[str, object], prefix: str) -> list[str]:
    """Return the keys of such an object that no release is known to print."""
    return [key for key in perf if key != prefix and key.removeprefix(f"{prefix}_") not in _KNOWN]


def _times(traced: object, prefix: str) -> tuple[float | None, float | None]:
    """Return when the call was made and when the first kernel began; only verbose records say."""
    if not isinstance(traced, dict):
        return None, None
    kernels = traced.get("kernel_events")
    starts = [
        start
        for kernel in (kernels[:MOST_KERNELS] if isinstance(kernels, list) else [])
        if isinstance(kernel, dict) and (start := bounded(kernel.get("kernel_start_ts")))
    ]
    return bounded(traced.get(f"{prefix}_start_ts")) or None, min(starts, default=None)


def whole(value: object) -> int | None:
    """Return a whole number that a table can hold, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -(1 << 31) < value < 1 << 53 else None


def bounded(value: object) -> float | None:
    """Return a number of bounded size, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None


def _name(value: object, printed: Callable[[str], str]) -> str | None:
    return printed(value[:64]) if isinstance(value, str) and value != "unknown" else None
