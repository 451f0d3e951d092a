"""Records of Inspector files to a Trace: calls become events, headers communicators and processes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from ringwright.formats.sources.gate.missing_records import of_collectives
from ringwright.formats.sources.nccl_inspector.records import (
    CALLS,
    InspectorCall,
    RecordContext,
    RecordOrigin,
    call,
    objects,
    whole,
)

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.source import Source
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

SOURCE = "inspector"
LEAST_BYTES = 8192  # smaller messages are not recorded by default
BATCH = 50_000

Process = tuple[str, int]  # host, pid


@dataclass
class SeenCommunicator:
    """A communicator as headers tell of it; ``number`` is its own in the Trace."""

    number: int
    size: int
    nnodes: int | None
    name: str = ""


@dataclass
class _LedgerLine:
    """How many objects of a file had one outcome, and where the first of them is."""

    line: int
    example: str | None
    count: int = 0


class InspectorJob:
    """The records of all files on their way to tables."""

    def __init__(self) -> None:
        self.understood = 0
        self.ledger: dict[tuple[str, str, str], _LedgerLine] = {}  # file, outcome, reason
        self.comms: dict[str, SeenCommunicator] = {}
        self.processes: dict[Process, dict[str, int]] = {}  # communicator to rank
        self.batch: list[Row] = []
        self.frames: list[pl.DataFrame] = []
        self.versions: Counter[str] = Counter()
        self.timing: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.dropped: dict[tuple[str, int, str], int] = {}
        self.off = 0

    def take(self, source: Source, progress: Callable[[int], None] | None) -> None:
        """Take the records of one file; what is no record is counted."""
        context = RecordContext()
        for line, data in objects(source, progress):
            self.take_object(source.name, context, line, data)

    def take_object(self, file: str, context: RecordContext, line: int, data: bytes) -> None:
        """Take one object of a file, which begins on a line; ``context`` is what came before it there."""
        try:
            record = msgspec.json.decode(data)
            reason = self._record(record, context, file, line) if isinstance(record, dict) else "no object"
        except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
            reason = f"damaged record: {str(error)[:80]}"
        if reason:
            outcome = "other" if reason.startswith("proxy") else "refused"
            self._count(file, outcome, reason, line, data[:200].decode("utf-8", "replace"))

    def _count(self, file: str, outcome: str, reason: str, line: int, example: str | None) -> None:
        self.ledger.setdefault((file, outcome, reason), _LedgerLine(line, example)).count += 1

    def _record(self, record: Mapping[str, object], context: RecordContext, file: str, line: int) -> str:
        """Take one record; return why it was not understood, or nothing."""
        origin = context.origin(record)
        if isinstance(origin, str):
            return origin
        self._process(origin)
        self.versions[origin.version] += 1
        stats = record.get("dump_stats")
        if isinstance(stats, dict):
            self._stats(origin, stats)
            self._understand(file, "statistics of a dump", line)
            return ""
        if "proxy_trace" in record:
            return "proxy records are counted, not read"
        for prefix in CALLS:
            perf = record.get(f"{prefix}_perf")
            if isinstance(perf, dict):
                return self._operation(call(perf, prefix), origin, file, line)
        return "neither coll_perf nor p2p_perf"

    def _understand(self, file: str, reason: str, line: int) -> None:
        self.understood += 1
        self._count(file, "understood", reason, line, None)

    def _process(self, origin: RecordOrigin) -> None:
        seen = SeenCommunicator(len(self.comms), origin.nranks, origin.nnodes)
        known = self.comms.setdefault(origin.communicator, seen)
        known.name = origin.name or known.name
        ranks = self.processes.setdefault((origin.host, origin.pid or 0), {})
        ranks.setdefault(origin.communicator, origin.rank)

    def _stats(self, origin: RecordOrigin, stats: Mapping[str, object]) -> None:
        for kind in ("coll", "p2p", "proxy", "proxy_ops"):
            count = whole(stats.get(f"{kind}_dropped_total")) or 0
            key = (origin.communicator, origin.rank, kind)
            self.dropped[key] = max(self.dropped.get(key, 0), count)

    def _operation(self, made: InspectorCall | None, origin: RecordOrigin, file: str, line: int) -> str:
        if made is None:
            return "an operation without size"
        self.timing[made.timing] += 1
        self.unknown.update(key[:64] for key in made.extra)
        self._compare(made.total_bytes(origin.nranks), made.time_us, made.algbw_gbs)
        event = _event(made, origin, self.comms[origin.communicator].number)
        self.batch.append(event | {"file": file, "line": line})
        if len(self.batch) >= BATCH:
            self._flush()
        self._understand(file, f"{made.prefix}_perf record", line)
        return ""

    def _compare(self, total: int, time_us: float | None, printed: float | None) -> None:
        """Count records whose printed bandwidth is not size over time: a sign that the convention of sizes is another."""
        if time_us and printed and time_us >= 100 and abs(total / time_us / 1e3 / printed - 1) > 0.02:
            self.off += 1

    def _flush(self) -> None:
        from ringwright.ground.trace_tables import rows

        if self.batch or not self.frames:
            self.frames.append(rows("events", self.batch))
            self.batch = []

    def trace(self, inputs: list[str], losses: list[str]) -> Trace:
        """Return the Trace of all records taken."""
        import polars as pl

        from ringwright.ground.trace_tables import rows
        from ringwright.model.trace import Trace

        self._flush()
        world, global_rank = self._world()
        events, origin_ns = _from_origin(pl.concat(self.frames))
        listed = [{"host": host or None, "pid": pid, "rank": rank} for (host, pid), rank in global_rank.items()]
        ranks = pl.DataFrame(listed, schema={"host": pl.String, "pid": pl.Int64, "rank": pl.Int32})
        events = events.drop("rank").join(ranks, on=["host", "pid"], how="left", nulls_equal=True)
        gone = of_collectives(events, {known.number: comm for comm, known in self.comms.items()})
        tables = {
            "events": events,
            "communicators": rows("communicators", self._communicators(global_rank)),
            "topology": rows("topology", [{"kind": "device", **row, "ground": "read"} for row in listed]),
            "claims": rows("claims", self._claims(world, global_rank, len(gone))),
            "ledger": rows(
                "ledger",
                [
                    {
                        "file": file,
                        "outcome": outcome,
                        "reason": reason,
                        "lines": told.count,
                        "example_line": told.line,
                        "example": told.example,
                    }
                    for (file, outcome, reason), told in self.ledger.items()
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

    def _world(self) -> tuple[int | None, dict[Process, int | None]]:
        """The rank in the largest communicator is the global rank, if that holds every process once."""
        size = max((comm.size for comm in self.comms.values()), default=0)
        ranks: dict[Process, int | None] = {}
        for process, places in self.processes.items():
            largest = [comm for comm in places if self.comms[comm].size == size]
            ranks[process] = places[largest[0]] if largest else None
        known = [rank for rank in ranks.values() if rank is not None]
        if len(known) != len(ranks) or len(set(known)) != len(known):
            return None, dict.fromkeys(ranks)
        return size or None, ranks

    def _communicators(self, ranks: dict[Process, int | None]) -> list[Row]:
        rows: list[Row] = []
        for comm, known in self.comms.items():
            members = [-1] * min(known.size, 1 << 20)
            seen = 0
            for process, places in self.processes.items():
                if comm in places and places[comm] < len(members):
                    seen += 1
                    rank = ranks[process]
                    members[places[comm]] = -1 if rank is None else rank
            rows.append(
                {
                    "communicator": known.number,
                    "comm_id": comm,
                    "name": known.name or None,
                    "size": known.size,
                    "members": members,
                    "ranks_seen": seen,
                    "nnodes": known.nnodes,
                    "ground": "read",
                    "confidence": 1.0,
                }
            )
        return rows

    def _claims(self, world: int | None, ranks: dict[Process, int | None], gaps: int) -> list[Row]:
        def claim(field: str, value: str, ground: str, note: str, confidence: float = 1.0) -> Row:
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


def _event(made: InspectorCall, origin: RecordOrigin, communicator: int) -> Row:
    """Return the event of a call, its times as they were read: absolute, in microseconds."""
    sent, received = made.moved_bytes(origin.nranks)
    return {
        "kind": "collective" if made.prefix == "coll" else "p2p",
        "op": made.op,
        "communicator": communicator,
        "comm_rank": origin.rank,
        "nranks": origin.nranks,
        "nnodes": origin.nnodes,
        "sequence": made.sequence,
        "host": origin.host or None,
        "pid": origin.pid,
        "size_bytes": made.total_bytes(origin.nranks),
        "sent_bytes": sent,
        "received_bytes": received,
        "peer": made.peer,
        "algorithm": made.algorithm,
        "protocol": made.protocol,
        "state": "completed",
        "enqueue_s": made.called_us,
        "start_s": made.started_us,
        "duration_s": made.time_us / 1e6 if made.time_us is not None and made.time_us >= 0 else None,
        "clock": f"host:{origin.host}"[:256],
        "text": f"timing {made.timing}" + (" " + json.dumps(made.extra, default=str)[:1000] if made.extra else ""),
        "source": SOURCE,
        "ground": "read" if made.timing.startswith("kernel") else "inferred",
        "confidence": 1.0 if made.timing == "kernel_gpu" else 0.8,
        "records": 1,
        "multiplicity": 1,
    }


def _from_origin(events: pl.DataFrame) -> tuple[pl.DataFrame, int | None]:
    """Bring absolute microseconds to seconds since the earliest of them."""
    import polars as pl

    times: list[float] = [
        t for name in ("enqueue_s", "start_s") for t in events[name].drop_nulls().head(1 << 24).to_list()
    ]
    origin_us = int(min(times)) if times else None
    moved = events.with_columns((pl.col("enqueue_s", "start_s") - (origin_us or 0)) / 1e6)
    return moved, None if origin_us is None else origin_us * 1000
