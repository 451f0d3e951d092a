"""The files of one job joined to a Trace: calls become events, headers communicators and processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from ringwright.formats.sources.gate.missing_records import of_collectives
from ringwright.formats.sources.nccl_inspector.file import LOST, PER_RANK, InspectorFile, ObjectCount
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    from ringwright.formats.sources.nccl_inspector.records import RecordOrigin
    from ringwright.ground.trace_tables import Row

SOURCE = "inspector"
LEAST_BYTES = 8192  # smaller messages are not recorded by default
REMEDY = "pass the folder that NCCL_INSPECTOR_DUMP_DIR names; see docs: Inspector and metrics"
_LARGEST = (1 << 63) - 1  # size in bytes that a table can hold

Process = tuple[str, int]  # host, pid


def joined(inputs: list[str], files: Sequence[tuple[str, InspectorFile]], losses: list[str]) -> Trace:
    """Return the Trace of some files, each with its name; InputError where no record was understood."""
    if not any(outcome == "understood" for _, file in files for outcome, _ in file.ledger):
        raise InputError("no Inspector record could be read", where=", ".join(inputs[:3]), remedy=REMEDY)
    return InspectorJob(files).trace(inputs, losses)


class InspectorJob:
    """The files of one job, and which ranks of which communicators its processes are."""

    def __init__(self, files: Sequence[tuple[str, InspectorFile]]) -> None:
        self.files = files
        self.comms: dict[str, RecordOrigin] = {}  # of each the first that is of it
        self.names: dict[str, str] = {}
        self.processes: dict[Process, dict[str, int]] = {}  # communicator to rank
        for _, file in files:
            self.names |= file.names
            for origin in file.origins:
                self.comms.setdefault(origin.communicator, origin)
                own = self.processes.setdefault((origin.host, origin.pid or 0), {})
                own.setdefault(origin.communicator, origin.rank)
        self.numbers = {communicator: number for number, communicator in enumerate(self.comms)}

    def trace(self, inputs: list[str], losses: list[str]) -> Trace:
        """Return the Trace."""
        world, ranks = self._world()
        events, origin_ns = _from_origin(self._events(ranks))
        listed = [{"host": host or None, "pid": pid, "rank": rank} for (host, pid), rank in ranks.items()]
        gone = of_collectives(events, dict(enumerate(self.comms)))
        tables = {
            "events": events,
            "communicators": rows("communicators", self._communicators(ranks)),
            "topology": rows("topology", [{"kind": "device", **row, "ground": "read"} for row in listed]),
            "claims": rows("claims", self._claims(world, ranks, len(gone))),
            "ledger": rows("ledger", self._ledger() + gone),
        }
        meta = {"source": SOURCE, "inputs": inputs, "losses": losses, "world": world, "nccl_versions": []}
        summary = f"{events.height:,} operations of {len(self.processes)} processes"
        return Trace.of(tables, meta | {"library": "nccl", "origin_ns": origin_ns, "summary": summary})

    def _events(self, ranks: dict[Process, int | None]) -> pl.DataFrame:
        """Return the events of all calls, their times as they were read: absolute, in microseconds."""
        told: list[tuple[int | str | None, ...]] = []
        calls: list[pl.DataFrame] = []
        for name, file in self.files:
            calls.append(file.calls.with_columns(pl.col("origin") + len(told), file=pl.lit(name)))
            told += [self._told(origin, ranks) for origin in file.origins]
        every = pl.concat(calls)
        return every.hstack(pl.DataFrame(told, schema=_OF_ORIGIN, orient="row")[every["origin"]]).select(*_event())

    def _told(self, origin: RecordOrigin, ranks: dict[Process, int | None]) -> tuple[int | str | None, ...]:
        rank = ranks[origin.host, origin.pid] if origin.pid is not None else None
        own = self.numbers[origin.communicator], origin.rank, origin.nranks, origin.nnodes
        return *own, origin.pid, rank, origin.host or None, f"host:{origin.host}"[:256]

    def _ledger(self) -> list[Row]:
        ledger: dict[tuple[str, str, str], ObjectCount] = {}
        for name, file in self.files:
            for key, each in file.ledger.items():
                ledger.setdefault((name, *key), ObjectCount(each.line, each.example)).count += each.count
        return [
            {"file": file, "outcome": outcome, "reason": reason, "lines": told.count}
            | {"example_line": told.line, "example": told.example}
            for (file, outcome, reason), told in ledger.items()
        ]

    def _world(self) -> tuple[int | None, dict[Process, int | None]]:
        """The rank in the largest communicator is the global rank, if that holds every process once."""
        size = max((comm.nranks for comm in self.comms.values()), default=0)
        ranks: dict[Process, int | None] = {}
        for process, places in self.processes.items():
            largest = [comm for comm in places if self.comms[comm].nranks == size]
            ranks[process] = places[largest[0]] if largest else None
        known = [rank for rank in ranks.values() if rank is not None]
        if len(known) != len(ranks) or len(set(known)) != len(known):
            return None, dict.fromkeys(ranks)
        return size or None, ranks

    def _communicators(self, ranks: dict[Process, int | None]) -> list[Row]:
        members = {comm: [-1] * min(each.nranks, 1 << 20) for comm, each in self.comms.items()}
        seen = Counter[str]()
        for process, own in self.processes.items():
            for comm, rank in own.items():
                if rank < len(members[comm]):
                    seen[comm] += 1
                    members[comm][rank] = -1 if (known := ranks[process]) is None else known
        return [
            {"communicator": self.numbers[comm], "comm_id": comm, "name": self.names.get(comm), "size": each.nranks}
            | {"members": members[comm], "ranks_seen": seen[comm], "nnodes": each.nnodes}
            | {"ground": "read", "confidence": 1.0}
            for comm, each in self.comms.items()
        ]

    def _claims(self, world: int | None, ranks: dict[Process, int | None], gaps: int) -> list[Row]:
        gathered = Gathered(SOURCE)

        def claim(field: str, value: str, ground: str, note: str, confidence: float = 1.0) -> None:
            gathered.claim(field, value, SOURCE, ground=ground, confidence=confidence, note=note)

        timing, unknown = Counter[str](), Counter[str]()
        dropped: Counter[tuple[str, int, str]] = Counter()
        for _, file in self.files:
            timing.update(file.timing)
            unknown.update(file.unknown)
            dropped |= Counter(file.dropped)
        versions = {origin.version for _, file in self.files for origin in file.origins}
        note = f"messages below {LEAST_BYTES:,} B are not recorded by default (NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES)"
        claim("coverage", f">= {LEAST_BYTES} B", "assumed", note, 0.8)
        said = ", ".join(f"{name} {count:,}" for name, count in timing.most_common(8))
        claim("timing source", said, "read", "kernel_gpu is the device's time, the others are the host's")
        claim("format", ", ".join(sorted(versions)), "read", "inspector_output_format_version")
        if world is not None:
            note = "the rank in the largest communicator is taken as the global rank"
            claim("rank", f"{len(ranks)} of {world} processes", "inferred", note, 0.7)
        lost = {kind: sum(n for (_, _, k), n in dropped.items() if k == kind) for kind in LOST}
        if any(lost.values()):
            text = ", ".join(f"{kind} {count:,}" for kind, count in lost.items() if count)
            claim("dropped records", text, "read", "overwritten before they were written: counts are lower bounds")
        if gaps:
            note = "coll_sn has gaps: records were lost, or their messages are below the threshold; counts are lower bounds"
            claim("missing records", f"{gaps:,} gaps", "inferred", note, 0.9)
        if unknown:
            text = ", ".join(key for key, _ in unknown.most_common(20))
            claim("unknown keys", text, "read", "kept in the text of the events")
        if off := sum(file.off for _, file in self.files):
            note = "printed algorithm bandwidth is not size over time: sizes may follow another convention"
            claim("contradiction", f"{off:,} records", "read", note)
        return gathered.claims


_NUMBERS = ("communicator", "comm_rank", "nranks", "nnodes", "pid", "rank")
_OF_ORIGIN = {**dict.fromkeys(_NUMBERS, int), "host": str, "clock": str}
_OF_EACH = {"state": "completed", "source": SOURCE, "records": 1, "multiplicity": 1}


def _event() -> list[pl.Expr]:
    """Return the columns of events, of calls with what their origins say."""
    size, op, timing = pl.col("size_bytes"), pl.col("op"), pl.col("timing")
    fits = size <= pl.lit(_LARGEST) // pl.col("nranks")
    total = pl.when(~op.is_in(PER_RANK)).then(size).when(fits).then(size * pl.col("nranks"))
    return [
        pl.when(pl.col("prefix") == "coll").then(pl.lit("collective")).otherwise(pl.lit("p2p")).alias("kind"),
        pl.col("op", *_OF_ORIGIN, "sequence", "algorithm", "protocol", "duration_s", "file", "line").exclude("nnodes"),
        pl.col("nnodes", "peer").cast(pl.Int32, strict=False),  # what a table cannot hold is unknown
        total.alias("size_bytes"),
        # what a rank hands in, and what it gets
        pl.when(op == "reduce-scatter").then(total).when(op != "recv").then(size).alias("sent_bytes"),
        pl.when(op == "all-gather").then(total).when(op != "send").then(size).alias("received_bytes"),
        pl.col("called_us").alias("enqueue_s"),
        pl.col("started_us").alias("start_s"),
        pl.concat_str(pl.lit("timing "), timing, "extra").alias("text"),
        pl.when(timing.str.starts_with("kernel")).then(pl.lit("read")).otherwise(pl.lit("inferred")).alias("ground"),
        pl.when(timing == "kernel_gpu").then(1.0).otherwise(0.8).alias("confidence"),
        *(pl.lit(value).alias(name) for name, value in _OF_EACH.items()),
    ]


def _from_origin(events: pl.DataFrame) -> tuple[pl.DataFrame, int | None]:
    """Bring absolute microseconds to seconds since the earliest of them."""
    first = events.select(pl.min_horizontal(pl.col("enqueue_s", "start_s").min())).item()
    origin_us = int(first) if first is not None else 0
    moved = events.with_columns((pl.col("enqueue_s", "start_s") - origin_us) / 1e6)
    return moved, None if first is None else origin_us * 1000
