"""One file's operations and device rows as columns; times in seconds from the file's own first moment."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.kineto.catalogue import UNKNOWN
from ringwright.formats.sources.kineto.columns import RankFile
from ringwright.formats.sources.kineto.facts import sizes
from ringwright.formats.sources.kineto.groups import FileGroups, KinetoCommunicator
from ringwright.formats.sources.kineto.marks import LaunchMarks
from ringwright.formats.sources.kineto.operations import KinetoOperation, Linked
from ringwright.ground.trace_tables import Row, fitted

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

POINTWISE = ("send", "recv", "send-recv")
_STEP = re.compile(r"ProfilerStep\s*#\s*(\d{1,15})")
_ITERATION = re.compile(r"^## .*?\b(?:iteration|iter|step)\b\D{0,3}(\d{1,15})", re.IGNORECASE)
_PAIR = re.compile(r"\d+\s*(?:->|<-)\s*(\d{1,7})")
_SYNCS = (("StreamWaitEvent", "stream-wait"), ("EventSynchronize", "event"), ("StreamSynchronize", "stream"))


def first_moment(rank_file: RankFile) -> int:
    """Return the whole microsecond at or before the earliest event kept; 0 without any."""
    tables = (rank_file.kernels, rank_file.calls, rank_file.records, rank_file.notes, rank_file.labels, rank_file.syncs)
    return math.floor(min((min(table.ts) for table in tables if len(table)), default=0))


class Calendar:
    """Steps and phases of a file: which of them holds a moment. Names of phases are those of the widest annotation."""

    def __init__(self, rank_file: RankFile) -> None:
        self.steps: list[tuple[float, float, int, str, int]] = []  # start, duration, iteration, name, line
        self.phases: list[tuple[float, float, int | None, str, int]] = []
        notes = rank_file.notes
        for start, dur, name, line in zip(notes.ts, notes.dur, notes.name, notes.line, strict=True):
            text = rank_file.names[name]
            step = _STEP.match(text) or _ITERATION.match(text)
            if step:
                self.steps.append((start, dur, int(step[1]), text, line))
            else:
                self.phases.append((start, dur, None, text.strip("# "), line))
        self.steps.sort()
        self.phases.sort(key=lambda row: (row[0], -row[1]))
        self._step_spans = _disjoint(self.steps)
        self._phase_spans = _disjoint(self.phases)

    def iterations(self, moments: np.ndarray) -> list[int | None]:
        """Return per moment (microseconds, NaN where unknown) the iteration it lies in."""
        spans = _lookup(self._step_spans, moments)
        return [None if index < 0 else self.steps[index][2] for index in spans]

    def phase_names(self, moments: np.ndarray) -> list[str | None]:
        """Return per moment the name of the phase it lies in."""
        spans = _lookup(self._phase_spans, moments)
        return [None if index < 0 else self.phases[index][3] for index in spans]


def _disjoint(rows: list[Any]) -> list[tuple[float, float, int]]:
    spans: list[tuple[float, float, int]] = []
    for number, (start, dur, *_) in enumerate(rows):
        if not spans or start >= spans[-1][1]:
            spans.append((start, start + dur, number))
    return spans


def _lookup(spans: list[tuple[float, float, int]], moments: np.ndarray) -> list[int]:
    import numpy as np

    if not spans or not len(moments):
        return [-1] * len(moments)
    starts, ends = np.array([span[0] for span in spans]), np.array([span[1] for span in spans])
    numbers = np.array([span[2] for span in spans])
    index = np.searchsorted(starts, np.nan_to_num(moments, nan=-np.inf), side="right") - 1
    inside = (index >= 0) & (moments <= ends[np.maximum(index, 0)])
    answer: list[int] = np.where(inside, numbers[np.maximum(index, 0)], -1).tolist()
    return answer


def operations(
    rank_file: RankFile, linked: Linked, groups: FileGroups, calendar: Calendar, zero: int, file: int
) -> tuple[pl.DataFrame, list[KinetoCommunicator]]:
    """Return one row per operation, and the groups used."""
    import numpy as np

    ops = linked.operations
    streams = _likely_streams(rank_file, ops)
    used = [groups.of(op.facts, op.library or "nccl", stream) for op, stream in zip(ops, streams, strict=True)]
    for group in used:
        group.files.add(file)
    moments = np.array([_moment(op) for op in ops], float)
    marks = LaunchMarks(rank_file)
    rows = [
        _row(rank_file, op, group, zero)
        | {"layer": marks.layer(op.thread, op.enqueue), "role": marks.role(op.thread, op.enqueue)}
        for op, group in zip(ops, used, strict=True)
    ]
    columns = {name: [row.get(name) for row in rows] for name in _COLUMNS}
    columns["iteration"] = calendar.iterations(moments)
    columns["phase"] = calendar.phase_names(moments)
    return fitted(columns, _schema([*_COLUMNS, "iteration", "phase"])), used


def _moment(op: KinetoOperation) -> float:
    """The moment that decides the step: the call on the host; kernels without one belong to no step for certain."""
    return math.nan if op.enqueue is None else op.enqueue


_COLUMNS = (
    "kind",
    "op",
    "records",
    "communicator",
    "comm_rank",
    "nranks",
    "sequence",
    "root",
    "pid",
    "thread",
    "device",
    "count",
    "datatype",
    "element_bytes",
    "size_bytes",
    "sent_bytes",
    "received_bytes",
    "reduce_op",
    "peer",
    "algorithm",
    "protocol",
    "channels",
    "stream",
    "graph_captured",
    "graph_replay",
    "kernel",
    "kernel_class",
    "layer",
    "role",
    "state",
    "enqueue_s",
    "start_s",
    "duration_s",
    "line",
    "ground",
    "confidence",
)


def _schema(names: list[str]) -> dict[str, Any]:
    from ringwright.ground.trace_tables import schema

    types = schema("events")
    return {name: types[name] for name in names}


def _likely_streams(rank_file: RankFile, ops: list[KinetoOperation]) -> list[int]:
    """Return the stream of each operation; one without a kernel gets that of its kind of operation."""
    streams = [rank_file.kernels.stream[op.kernels[0]] if op.kernels else None for op in ops]
    by_op: dict[str, int] = {}
    for op, stream in zip(ops, streams, strict=True):
        if stream is not None:
            by_op.setdefault(op.op, stream)
    common = next((stream for stream in streams if stream is not None), -1)
    return [by_op.get(op.op, common) if s is None else s for op, s in zip(ops, streams, strict=True)]


def _identity(value: object) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 62 else None


def _row(rank_file: RankFile, op: KinetoOperation, group: KinetoCommunicator, zero: int) -> dict[str, Any]:
    about, kind = op.facts, op.kernel
    nranks = group.size or about.group_size
    row: dict[str, Any] = {
        "kind": "p2p" if op.op in POINTWISE else "collective",
        "op": op.op,
        "records": max(1, len(op.kernels)),
        "communicator": group.number,
        "nranks": nranks,
        "sequence": about.sequence,
        "root": about.root,
        "count": about.elements(op.op),
        "datatype": about.datatype or (kind.datatype if kind else None),
        "kernel_class": op.library or None,
        "state": "completed" if op.duration is not None else "scheduled",
        "line": op.line,
        "ground": op.ground,
        "confidence": {"read": 1.0, "inferred": 0.9, "assumed": 0.5}[op.ground],
    }
    row |= sizes(op.op, about, nranks)
    if op.replay is not None:
        row |= {"graph_captured": True, "graph_replay": op.replay}
    if op.op in POINTWISE:
        row["peer"] = _peer(op)
    if op.thread is not None:
        pid, tid = rank_file.threads[op.thread]
        row |= {"pid": _identity(pid), "thread": _identity(tid)}
    if kind is not None and op.kernels:
        row |= _device(rank_file, op.kernels[0], kind)
    for name, moment in (("enqueue_s", op.enqueue), ("start_s", op.start)):
        row[name] = None if moment is None else (moment - zero) * 1e-6
    row["duration_s"] = None if op.duration is None else op.duration * 1e-6
    return row


def _peer(op: KinetoOperation) -> int | None:
    """Return the partner of a send or receive: from the metadata, else from a label such as ``nccl:send 0->1``."""
    said = op.facts.dst_rank if op.op == "send" else op.facts.src_rank if op.op == "recv" else None
    found = _PAIR.search(op.label) if said is None and op.op in ("send", "recv") else None
    return int(found[1]) if found else said


def _device(rank_file: RankFile, number: int, kind: Any) -> dict[str, Any]:
    table = rank_file.kernels
    channels, device = table.channels[number], table.device[number]
    return {
        "kernel": rank_file.names[table.name[number]],
        "stream": str(table.stream[number]),
        "device": device if device >= 0 else None,
        "channels": channels if channels > 0 and kind.library in ("nccl", "rccl") else None,
        "algorithm": kind.algorithm,
        "protocol": kind.protocol,
        "reduce_op": kind.reduce_op,
    }


def device_rows(rank_file: RankFile, linked: Linked, calendar: Calendar, zero: int) -> pl.DataFrame:
    """Return the kernels and copies that do not communicate, in the order of the file."""
    import numpy as np
    import polars as pl

    mine = np.flatnonzero(~linked.communicates)
    table = rank_file.kernels
    name = np.frombuffer(table.name, np.int32)[mine] if len(table) else np.zeros(0, np.int32)
    call = linked.call[mine]
    calls = np.frombuffer(rank_file.calls.ts, float) if len(rank_file.calls) else np.zeros(1)
    moments = np.where(call >= 0, calls[np.maximum(call, 0)], np.nan)
    copies = _take(table.is_copy, np.int8, mine).astype(bool)
    classes = pl.Series([UNKNOWN if kind.library == UNKNOWN else "compute" for kind in linked.classes], dtype=pl.String)
    unknown = pl.Series([UNKNOWN], dtype=pl.String).new_from_index(0, len(mine))
    frame = pl.DataFrame(
        {
            "kernel": pl.Series(rank_file.names, dtype=pl.String).gather(name),
            "kernel_class": classes.gather(name).zip_with(pl.Series(~linked.nameless[mine]), unknown),
            "stream": pl.Series(_take(table.stream, np.int64, mine)).cast(pl.String),
            "device": pl.Series(_take(table.device, np.int32, mine)),
            "enqueue_s": pl.Series((moments - zero) * 1e-6).fill_nan(None),
            "start_s": (_take(table.ts, float, mine) - zero) * 1e-6,
            "duration_s": _take(table.dur, float, mine) * 1e-6,
            "line": _take(table.line, np.int64, mine),
            "iteration": pl.Series(calendar.iterations(moments), dtype=pl.Int64),
            "is_copy": copies,
        }
    )
    copied = pl.col("is_copy")
    return frame.with_columns(
        pl.when(copied).then(pl.lit("memory")).otherwise(pl.lit("compute")).alias("kind"),
        pl.when(copied).then(pl.lit("memory")).otherwise(pl.col("kernel_class")).alias("kernel_class"),
        pl.when(pl.col("device") >= 0).then(pl.col("device")).alias("device"),
        pl.lit("read").alias("ground"),
    ).drop("is_copy")


def _take(column: Any, kind: Any, places: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.frombuffer(column, kind)[places] if len(column) else np.zeros(0, kind)


def host_rows(rank_file: RankFile, calendar: Calendar, zero: int) -> pl.DataFrame:
    """Return steps, phases, the calls that wait (kind ``sync``), and what marks launches (kind ``operator``)."""
    import numpy as np
    import polars as pl

    rows = [
        {
            "kind": "step",
            "start_s": (start - zero) * 1e-6,
            "duration_s": dur * 1e-6,
            "text": text,
            "line": line,
            "iteration": number,
        }
        for start, dur, number, text, line in calendar.steps
    ]
    numbers = calendar.iterations(np.array([row[0] for row in calendar.phases], float))
    rows += [
        {
            "kind": "phase",
            "start_s": (start - zero) * 1e-6,
            "duration_s": dur * 1e-6,
            "text": text,
            "line": line,
            "phase": text,
            "iteration": number,
        }
        for (start, dur, _, text, line), number in zip(calendar.phases, numbers, strict=True)
    ]
    table = rank_file.syncs
    for start, dur, name, line, thread in zip(table.ts, table.dur, table.name, table.line, table.thread, strict=True):
        text = rank_file.names[name]
        op = next((op for word, op in _SYNCS if word in text), "device")
        tid = rank_file.threads[thread][1]
        rows.append(
            {
                "kind": "sync",
                "op": op,
                "start_s": (start - zero) * 1e-6,
                "duration_s": dur * 1e-6,
                "text": text,
                "line": line,
                "thread": tid if type(tid) is int and abs(tid) < 1 << 62 else None,
            }
        )
    rows += _operators(rank_file, calendar, zero)
    names = ["kind", "op", "start_s", "duration_s", "text", "line", "iteration", "phase", "layer", "thread"]
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pl.DataFrame(columns, schema=_schema(names)).with_columns(pl.lit("read").alias("ground"))


def _operators(rank_file: RankFile, calendar: Calendar, zero: int) -> list[Row]:
    import numpy as np

    rows = list(LaunchMarks(rank_file).rows(zero))
    moments = np.array([row["start_s"] for row in rows], float) * 1e6 + zero
    for row, number in zip(rows, calendar.iterations(moments), strict=True):
        row["iteration"] = number
    return rows
