"""NCCL Inspector: one JSON object per collective or send, one file per process, formats v4.0 to v4.3.

Sizes are per rank for all-gather and reduce-scatter (``algobw = size x ranks / time``), whole buffers otherwise. Ranks are
those of the communicator. From v4.3 on a ``dump_stats`` record carries the header of the records that follow it.
Format: NCCL ``plugins/profiler/inspector`` (README and ``inspector_json.cc``), releases 2.28 to 2.30.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ringwright.errors import InputError
from ringwright.sources.missing import of_collectives

if TYPE_CHECKING:
    import polars as pl

    from ringwright.sources.source import Source
    from ringwright.trace import Trace

SOURCE = "inspector"
LEAST_BYTES = 8192  # smaller messages are not recorded by default
MOST_RECORD_BYTES = 8 << 20
MOST_DEPTH = 64
BATCH = 50_000
REMEDY = "pass the folder that NCCL_INSPECTOR_DUMP_DIR names; see docs: Inspector and metrics"
OPS = {
    "AllReduce": "all-reduce",
    "AllGather": "all-gather",
    "ReduceScatter": "reduce-scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AlltoAll": "all-to-all",
    "AllToAll": "all-to-all",
    "Gather": "gather",
    "Scatter": "scatter",
    "Send": "send",
    "Recv": "recv",
}
PER_RANK = frozenset({"all-gather", "reduce-scatter"})
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]]')  # an open string ends with the line: no second look
_KNOWN = frozenset(
    "algo proto sn msg_size_bytes exec_time_us timing_source algobw_gbs busbw_gbs peer event_trace_sn event_trace_ts".split()
)


def read_inspector(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of the Inspector files of one job; raise InputError when none holds a record."""
    job = _Job()
    for source in sources:
        job.take(source, progress)
    if not job.understood:
        names = ", ".join(source.name for source in sources[:3])
        raise InputError("no Inspector record could be read", where=names, remedy=REMEDY)
    losses = job.losses + [f"{s.name}: byte {at:,}: {reason}" for s in sources for reason, at in s.losses]
    return job.trace([source.name for source in sources], losses)


def records(source: Source, progress: Callable[[int], None] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the line where each object begins and its bytes, on one line or on many; an unfinished one too."""
    held: list[bytes] = []
    size = depth = first = 0
    for number, line in enumerate(_lines(source), 1):
        if progress is not None:
            progress(len(line))
        if held and line.startswith(b"{"):
            yield first, b"".join(held)  # the object before was cut
            held, size, depth = [], 0, 0
        if not held:
            if not line.strip():
                continue
            first = number
        depth += sum(1 if t in (b"{", b"[") else -1 for t in _TOKENS.findall(line) if t[:1] != b'"')
        size += len(line)
        held.append(line[:MOST_RECORD_BYTES])
        if depth <= 0 or size > MOST_RECORD_BYTES:
            yield first, b"".join(held)
            held, size, depth = [], 0, 0
    if held:
        yield first, b"".join(held)


def _lines(source: Source) -> Iterator[bytes]:
    read = 0
    with source.open() as stream:
        while True:
            try:
                line = stream.readline(MOST_RECORD_BYTES) if hasattr(stream, "readline") else b""
            except Exception as error:
                # zstandard raises its own type, which exists only when it is installed
                if not isinstance(error, OSError | EOFError | zlib.error) and type(error).__name__ != "ZstdError":
                    raise
                source.losses.append((f"input damaged, rest not read: {type(error).__name__}", read))
                return
            if not line:
                return
            read += len(line)
            yield line


class _Job:
    """The records of all files on their way to tables."""

    def __init__(self) -> None:
        self.understood = 0
        self.losses: list[str] = []
        self.ledger: dict[tuple[str, str, str], list[Any]] = {}
        self.comms: dict[str, dict[str, Any]] = {}
        self.processes: dict[tuple[str, int], dict[str, int]] = {}  # (host, pid): communicator to rank
        self.batch: list[dict[str, Any]] = []
        self.frames: list[pl.DataFrame] = []
        self.versions: Counter[str] = Counter()
        self.timing: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.dropped: dict[tuple[str, int, str], int] = {}
        self.off = 0

    def take(self, source: Source, progress: Callable[[int], None] | None) -> None:
        context: dict[str, Any] = {}
        for line, data in records(source, progress):
            reason = "damaged JSON"
            try:
                record = msgspec.json.decode(data)
                reason = self._record(record, context, source.name, line) if isinstance(record, dict) else "no object"
            except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
                reason = f"damaged record: {str(error)[:80]}"
            if reason:
                self._count(source.name, "other" if reason.startswith("proxy") else "refused", reason, line, data)

    def _count(self, file: str, outcome: str, reason: str, line: int, data: bytes) -> None:
        entry = self.ledger.setdefault((file, outcome, reason), [0, line, data[:200].decode("utf-8", "replace")])
        entry[0] += 1

    def _record(self, record: dict[str, Any], context: dict[str, Any], file: str, line: int) -> str:
        """Take one record; return why it was not understood, or nothing."""
        for key in ("header", "metadata"):
            if isinstance(record.get(key), dict):
                context[key] = record[key]
        header, meta = context.get("header"), context.get("metadata") or {}
        if header is None:
            return "a record before any header"
        comm, rank, nranks = str(header.get("id", ""))[:64], _whole(header.get("rank")), _whole(header.get("n_ranks"))
        if not comm or rank is None or nranks is None or not 0 <= rank < nranks <= 1 << 24:
            return "a header without id, rank and n_ranks"
        self._process(comm, rank, nranks, header, meta)
        self.versions[str(meta.get("inspector_output_format_version", "unknown"))[:16]] += 1
        if isinstance(record.get("dump_stats"), dict):
            self._stats(comm, rank, record["dump_stats"])
            self._understand(file, "statistics of a dump", line)
            return ""
        if "proxy_trace" in record:
            return "proxy records are counted, not read"
        prefix = next((p for p in ("coll", "p2p") if isinstance(record.get(f"{p}_perf"), dict)), None)
        if prefix is None:
            return "neither coll_perf nor p2p_perf"
        return self._operation(record[f"{prefix}_perf"], prefix, comm, header, meta, (file, line))

    def _understand(self, file: str, reason: str, line: int) -> None:
        self.understood += 1
        entry = self.ledger.setdefault((file, "understood", reason), [0, line, None])
        entry[0] += 1

    def _process(self, comm: str, rank: int, nranks: int, header: dict[str, Any], meta: dict[str, Any]) -> None:
        key = (str(meta.get("hostname", ""))[:256], _whole(meta.get("pid")) or 0)
        known = self.comms.setdefault(
            comm, {"number": len(self.comms), "size": nranks, "name": "", "nnodes": _whole(header.get("nnodes"))}
        )
        name = header.get("comm_name")
        if isinstance(name, str) and name not in ("", "unknown"):
            known["name"] = name[:256]
        self.processes.setdefault(key, {}).setdefault(comm, rank)

    def _stats(self, comm: str, rank: int, stats: dict[str, Any]) -> None:
        for kind in ("coll", "p2p", "proxy", "proxy_ops"):
            count = _whole(stats.get(f"{kind}_dropped_total")) or 0
            key = (comm, rank, kind)
            self.dropped[key] = max(self.dropped.get(key, 0), count)

    def _operation(
        self,
        perf: dict[str, Any],
        prefix: str,
        comm: str,
        header: dict[str, Any],
        meta: dict[str, Any],
        at: tuple[str, int],
    ) -> str:
        size, time_us = _whole(perf.get(f"{prefix}_msg_size_bytes")), _number(perf.get(f"{prefix}_exec_time_us"))
        op = OPS.get(str(perf.get(prefix)), "unknown")
        if size is None or size < 0:
            return "an operation without size"
        nranks, rank = header["n_ranks"], header["rank"]
        timing = str(perf.get(f"{prefix}_timing_source", "unsaid"))[:32]
        self.timing[timing] += 1
        total = size * nranks if op in PER_RANK else size
        times = _times(perf.get("event_trace_ts"), prefix)
        extra = {k: v for k, v in perf.items() if k != prefix and k.removeprefix(f"{prefix}_") not in _KNOWN}
        self.unknown.update(key[:64] for key in extra)
        self._compare(total, time_us, _number(perf.get(f"{prefix}_algobw_gbs")))
        self.batch.append(
            {
                "kind": "collective" if prefix == "coll" else "p2p",
                "op": op,
                "communicator": self.comms[comm]["number"],
                "comm_rank": rank,
                "nranks": nranks,
                "nnodes": _whole(header.get("nnodes")),
                "sequence": _whole(perf.get(f"{prefix}_sn")),
                "host": str(meta.get("hostname", ""))[:256] or None,
                "pid": _whole(meta.get("pid")),
                "size_bytes": total,
                **_moved(op, size, nranks),
                "peer": _whole(perf.get("p2p_peer")),
                "algorithm": _name(perf.get(f"{prefix}_algo")),
                "protocol": _name(perf.get(f"{prefix}_proto")),
                "state": "completed",
                "enqueue_s": times[0],
                "start_s": times[1],
                "duration_s": time_us / 1e6 if time_us is not None and time_us >= 0 else None,
                "clock": f"host:{meta.get('hostname', '')}"[:256],
                "text": f"timing {timing}" + (" " + json.dumps(extra, default=str)[:1000] if extra else ""),
                "source": SOURCE,
                "file": at[0],
                "line": at[1],
                "ground": "read" if timing.startswith("kernel") else "inferred",
                "confidence": 1.0 if timing == "kernel_gpu" else 0.8,
                "records": 1,
                "multiplicity": 1,
            }
        )
        if len(self.batch) >= BATCH:
            self._flush()
        self._understand(at[0], f"{prefix}_perf record", at[1])
        return ""

    def _compare(self, total: int, time_us: float | None, printed: float | None) -> None:
        """Count records whose printed bandwidth is not size over time: a sign that the convention of sizes is another."""
        if time_us and printed and time_us >= 100 and abs(total / time_us / 1e3 / printed - 1) > 0.02:
            self.off += 1

    def _flush(self) -> None:
        from ringwright.trace import rows

        self.frames.append(rows("events", self.batch))
        self.batch = []

    def trace(self, inputs: list[str], losses: list[str]) -> Trace:
        import polars as pl

        from ringwright.trace import Trace, rows

        self._flush()
        world, global_rank = self._world()
        events, origin_ns = _from_origin(pl.concat(self.frames))
        listed = [{"host": host or None, "pid": pid, "rank": rank} for (host, pid), rank in global_rank.items()]
        ranks = pl.DataFrame(listed, schema={"host": pl.String, "pid": pl.Int64, "rank": pl.Int32})
        events = events.drop("rank").join(ranks, on=["host", "pid"], how="left", nulls_equal=True)
        gone = of_collectives(events, {known["number"]: comm for comm, known in self.comms.items()})
        tables = {
            "events": events,
            "communicators": rows("communicators", self._communicators(global_rank)),
            "topology": rows("topology", [{"kind": "device", **row, "ground": "read"} for row in listed]),
            "claims": rows("claims", self._claims(world, global_rank, len(gone))),
            "ledger": rows(
                "ledger",
                [
                    {"file": f, "outcome": o, "reason": r, "lines": n, "example_line": at, "example": text}
                    for (f, o, r), (n, at, text) in self.ledger.items()
                ]
                + gone,
            ),
        }
        meta = {
            "source": SOURCE,
            "inputs": inputs,
            "losses": losses,
            "world": world,
            "nccl_versions": [],
            "library": "nccl",
            "origin_ns": origin_ns,
            "summary": f"{events.height:,} operations of {len(self.processes)} processes",
        }
        return Trace.of(tables, meta)

    def _world(self) -> tuple[int | None, dict[tuple[str, int], int | None]]:
        """The rank in the largest communicator is the global rank, if that holds every process once."""
        size = max((comm["size"] for comm in self.comms.values()), default=0)
        ranks: dict[tuple[str, int], int | None] = {}
        for process, places in self.processes.items():
            largest = [comm for comm in places if self.comms[comm]["size"] == size]
            ranks[process] = places[largest[0]] if largest else None
        known = [rank for rank in ranks.values() if rank is not None]
        if len(known) != len(ranks) or len(set(known)) != len(known):
            return None, dict.fromkeys(ranks)
        return size or None, ranks

    def _communicators(self, ranks: dict[tuple[str, int], int | None]) -> list[dict[str, Any]]:
        rows = []
        for comm, known in self.comms.items():
            members = [-1] * min(known["size"], 1 << 20)
            seen = 0
            for process, places in self.processes.items():
                if comm in places and places[comm] < len(members):
                    seen += 1
                    rank = ranks[process]
                    members[places[comm]] = -1 if rank is None else rank
            rows.append(
                {
                    "communicator": known["number"],
                    "comm_id": comm,
                    "name": known["name"] or None,
                    "size": known["size"],
                    "members": members,
                    "ranks_seen": seen,
                    "nnodes": known["nnodes"],
                    "ground": "read",
                    "confidence": 1.0,
                }
            )
        return rows

    def _claims(self, world: int | None, ranks: dict[tuple[str, int], int | None], gaps: int) -> list[dict[str, Any]]:
        def claim(field: str, value: str, ground: str, note: str, confidence: float = 1.0) -> dict[str, Any]:
            return {
                "field": field,
                "value": value,
                "source": SOURCE,
                "ground": ground,
                "confidence": confidence,
                "note": note,
            }

        note = f"messages below {LEAST_BYTES:,} B are not recorded by default (NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES)"
        claims = [claim("coverage", f">= {LEAST_BYTES} B", "assumed", note, 0.8)]
        said = ", ".join(f"{name} {count:,}" for name, count in self.timing.most_common(8))
        claims.append(
            claim("timing source", said, "read", "kernel_gpu is the device's time, the others are the host's")
        )
        claims.append(claim("format", ", ".join(sorted(self.versions)), "read", "inspector_output_format_version"))
        if world is not None:
            note = "the rank in the largest communicator is taken as the global rank"
            claims.append(claim("rank", f"{len(ranks)} of {world} processes", "inferred", note, 0.7))
        lost = {kind: sum(n for (_, _, k), n in self.dropped.items() if k == kind) for kind in ("coll", "p2p", "proxy")}
        if any(lost.values()):
            text = ", ".join(f"{kind} {count:,}" for kind, count in lost.items() if count)
            claims.append(
                claim("dropped records", text, "read", "overwritten before they were written: counts are lower bounds")
            )
        if gaps:
            note = "coll_sn has gaps: records were lost, or their messages are below the threshold; counts are lower bounds"
            claims.append(claim("missing records", f"{gaps:,} gaps", "inferred", note, 0.9))
        if self.unknown:
            text = ", ".join(key for key, _ in self.unknown.most_common(20))
            claims.append(claim("unknown keys", text, "read", "kept in the text of the events"))
        if self.off:
            note = "printed algorithm bandwidth is not size over time: sizes may follow another convention"
            claims.append(claim("contradiction", f"{self.off:,} records", "read", note))
        return claims


def _moved(op: str, size: int, nranks: int) -> dict[str, int | None]:
    """Return what a rank hands in and gets, for a size as the Inspector prints it."""
    parts: dict[str, tuple[int | None, int | None]] = {
        "all-gather": (size, size * nranks),
        "reduce-scatter": (size * nranks, size),
        "send": (size, None),
        "recv": (None, size),
    }
    sent, received = parts.get(op, (size, size))
    return {"sent_bytes": sent, "received_bytes": received}


def _times(traced: Any, prefix: str) -> tuple[float | None, float | None]:
    """Return when the call was made and when the first kernel began, in microseconds; only verbose records say."""
    if not isinstance(traced, dict):
        return None, None
    kernels = traced.get("kernel_events")
    starts = [
        start
        for kernel in (kernels[:4096] if isinstance(kernels, list) else [])
        if isinstance(kernel, dict) and (start := _number(kernel.get("kernel_start_ts")))
    ]
    return _number(traced.get(f"{prefix}_start_ts")) or None, min(starts, default=None)


def _from_origin(events: pl.DataFrame) -> tuple[pl.DataFrame, int | None]:
    """Bring absolute microseconds to seconds since the earliest of them."""
    import polars as pl

    times: list[float] = [
        t for name in ("enqueue_s", "start_s") for t in events[name].drop_nulls().head(1 << 24).to_list()
    ]
    origin_us = int(min(times)) if times else None
    moved = events.with_columns((pl.col("enqueue_s", "start_s") - (origin_us or 0)) / 1e6)
    return moved, None if origin_us is None else origin_us * 1000


def _whole(value: Any) -> int | None:
    return value if type(value) is int and -(1 << 31) < value < 1 << 53 else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < 1e18 else None


def _name(value: Any) -> str | None:
    return value[:64].lower().replace("_", "-") if isinstance(value, str) and value != "unknown" else None
