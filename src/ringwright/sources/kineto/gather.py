"""What one trace file holds for us, as compact columns: kernels, calls, communication records, labels, steps."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ringwright.sources.inputs import Source
from ringwright.sources.kineto.pieces import Reading
from ringwright.sources.kineto.records import BAD_JSON, CommArgs, Event, decode_call, decode_comm, decode_kernel
from ringwright.sources.kineto.stream import batches

KERNEL, COPY, CALL, HOST, NOTE = range(5)
CATEGORIES = {
    "kernel": KERNEL, "Kernel": KERNEL,
    "gpu_memcpy": COPY, "Memcpy": COPY, "gpu_memset": COPY, "Memset": COPY,
    "cuda_runtime": CALL, "Runtime": CALL, "cuda_driver": CALL, "hip_runtime": CALL, "hip_driver": CALL,
    "xpu_runtime": CALL, "privateuse1_runtime": CALL, "mtia_runtime": CALL,
    "cpu_op": HOST, "Operator": HOST, "operator": HOST, "user_annotation": NOTE,
}  # fmt: skip
LAUNCH, SYNC, PASS = range(3)
ROWS_PER_FILE = 8_000_000  # of each kind; what lies beyond is counted as lost
NAMES = 1 << 17
TOO_MANY = "(one of the names beyond 131,072)"
LONGEST_NAME = 2048
RECORD = "record_param_comms"
_LABELS = ("nccl:", "c10d:", "_c10d", "gloo:", "mpi:", "ucc:", "xccl:", "rccl:", "hccl:", "symm_")
_LABEL_STARTS = {label[:4] for label in _LABELS}
_LIMIT = 1 << 62
_PID = 1 << 40


@dataclass
class Table:
    """Columns of one kind of event: ``ts`` and ``dur`` in microseconds, ``name`` an index into the names of the file."""

    ts: array[float] = field(default_factory=lambda: array("d"))
    dur: array[float] = field(default_factory=lambda: array("d"))
    name: array[int] = field(default_factory=lambda: array("i"))
    thread: array[int] = field(default_factory=lambda: array("i"))
    line: array[int] = field(default_factory=lambda: array("q"))
    correlation: array[int] = field(default_factory=lambda: array("q"))
    stream: array[int] = field(default_factory=lambda: array("q"))
    device: array[int] = field(default_factory=lambda: array("i"))
    channels: array[int] = field(default_factory=lambda: array("i"))
    external: array[int] = field(default_factory=lambda: array("q"))
    is_copy: array[int] = field(default_factory=lambda: array("b"))

    def __len__(self) -> int:
        return len(self.ts)


@dataclass
class RankFile:
    """One file, gathered. ``meta`` maps the number of a kernel to what was copied onto it."""

    reading: Reading
    names: list[str] = field(default_factory=list)
    threads: list[tuple[Any, Any]] = field(default_factory=list)
    kernels: Table = field(default_factory=Table)
    calls: Table = field(default_factory=Table)
    syncs: Table = field(default_factory=Table)
    labels: Table = field(default_factory=Table)
    notes: Table = field(default_factory=Table)
    records: Table = field(default_factory=Table)
    record_args: list[CommArgs] = field(default_factory=list)
    meta: dict[int, CommArgs] = field(default_factory=dict)
    bad: int = 0
    dropped: int = 0

    @property
    def used(self) -> int:
        """Events that this reader keeps."""
        tables = (self.kernels, self.calls, self.syncs, self.labels, self.notes, self.records)
        return sum(len(table) for table in tables)


def gather(source: Source, progress: Callable[[int], None] | None = None) -> RankFile:
    """Read one source; raises nothing but what opening the source raises."""
    found = RankFile(Reading(source.name))
    sorter = _Sorter(found)
    for events in batches(source, found.reading, progress):
        sorter.take(events, found.reading.events - len(events))
    return found


class _Sorter:
    """Puts events into the tables of a file."""

    def __init__(self, found: RankFile) -> None:
        self.found = found
        self._names: dict[str, int] = {}
        self._threads: dict[tuple[Any, Any], int] = {}
        self._calls: dict[str, int] = {}

    def take(self, events: list[Event], first: int) -> None:
        """Sort a batch, whose first event is number ``first`` of the file."""
        take = (self._kernel, self._copy, self._call, self._host, self._note)
        for line, event in enumerate(events, first):
            cat = event.cat
            if type(cat) is not str:
                continue
            kind = CATEGORIES.get(cat)
            if kind is not None and event.ph == "X" and type(event.name) is str:
                take[kind](event, line)

    def _kernel(self, event: Event, line: int) -> None:
        self._device(event, line, is_copy=False)

    def _copy(self, event: Event, line: int) -> None:
        self._device(event, line, is_copy=True)

    def _device(self, event: Event, line: int, *, is_copy: bool) -> None:
        table = self.found.kernels
        if not self._time(table, event, line):
            return
        try:
            args = decode_kernel(event.args)
        except BAD_JSON:
            args = None
            self.found.bad += 1
        number = whole(args.correlation) if args is not None else None
        table.correlation.append(-1 if number is None else number)
        table.is_copy.append(is_copy)
        if args is None:
            table.stream.append(-1)
            table.device.append(-1)
            table.channels.append(0)
            table.external.append(-1)
            return
        stream = whole(args.stream)
        table.stream.append(stream if stream is not None else _or(whole(event.tid), -1))
        table.device.append(_small(args.device))
        grid = args.grid
        table.channels.append(_small(grid[0]) if type(grid) is list and grid else 0)
        table.external.append(_or(whole(args.external), -1))
        if args.collective is not None or args.group_name is not None or args.group_id is not None:
            self.found.meta[len(table) - 1] = args

    def _call(self, event: Event, line: int) -> None:
        kind = self._calls.get(event.name)
        if kind is None:
            kind = _call_kind(event.name)
            if len(self._calls) < NAMES:
                self._calls[event.name] = kind
        if kind == SYNC:
            self._place(self.found.syncs, event, line)
        elif kind == LAUNCH:
            try:
                number = whole(decode_call(event.args).correlation)
            except BAD_JSON:
                number = None
            if number is None:
                self.found.bad += 1
            elif self._place(self.found.calls, event, line):
                self.found.calls.correlation.append(number)

    def _host(self, event: Event, line: int) -> None:
        name = event.name
        if name == RECORD:
            try:
                args = decode_comm(event.args)
            except BAD_JSON:
                args = CommArgs()
                self.found.bad += 1
            if self._place(self.found.records, event, line):
                self.found.record_args.append(args)
        elif name[:4] in _LABEL_STARTS and name.startswith(_LABELS):
            self._place(self.found.labels, event, line)

    def _note(self, event: Event, line: int) -> None:
        """A user annotation: a step, a phase, or (newer releases) the label of a collective."""
        if event.name.startswith(("ProfilerStep", "## ")):
            self._place(self.found.notes, event, line)
        else:
            self._host(event, line)

    def _place(self, table: Table, event: Event, line: int) -> bool:
        """Append the columns that all tables of the host have; False when the event has no usable time."""
        if not self._time(table, event, line):
            return False
        table.thread.append(self._thread(event.pid, event.tid))
        return True

    def _time(self, table: Table, event: Event, line: int) -> bool:
        """Append time, name and line."""
        ts, dur = event.ts, event.dur
        if dur is None:
            dur = 0.0
        is_number = (type(ts) is float or type(ts) is int) and (type(dur) is float or type(dur) is int)
        if not is_number or not 0 <= dur < _PID or not -_LIMIT < ts < _LIMIT:
            self.found.bad += 1
            return False
        if len(table.ts) >= ROWS_PER_FILE:
            self.found.dropped += 1
            return False
        table.ts.append(ts)
        table.dur.append(dur)
        name = self._names.get(event.name)
        table.name.append(self._name(event.name) if name is None else name)
        table.line.append(line)
        return True

    def _name(self, name: str) -> int:
        number = self._names.get(name)
        if number is None:
            name = name[:LONGEST_NAME] if len(self._names) < NAMES else TOO_MANY
            number = self._names.setdefault(name, len(self.found.names))
            if number == len(self.found.names):
                self.found.names.append(name)
        return number

    def _thread(self, pid: Any, tid: Any) -> int:
        key = (pid, tid) if type(pid) in (int, str) and type(tid) in (int, str) else (None, None)
        number = self._threads.get(key)
        if number is None:
            if len(self._threads) >= NAMES:
                return 0
            number = self._threads[key] = len(self.found.threads)
            self.found.threads.append(key)
        return number


def _call_kind(name: str) -> int:
    if re.search(r"StreamWaitEvent|Synchronize$", name):
        return SYNC
    return LAUNCH if re.search(r"[Ll]aunch|Memcpy|Memset|memcpy|memset", name) else PASS


def whole(value: Any) -> int | None:
    """Return a whole number of at most 62 bits, also one spelled as text or float; None for anything else."""
    if type(value) is int:
        return value if -_LIMIT < value < _LIMIT else None
    if value is None:
        return None
    if type(value) is float and math.isfinite(value) and value == int(value) and abs(value) < _LIMIT:
        return int(value)
    if type(value) is str and len(value) < 20 and value.strip().lstrip("-").isdecimal():
        return int(value)
    return None


def _or(value: int | None, other: int) -> int:
    return other if value is None else value


def _small(value: Any) -> int:
    number = whole(value)
    return number if number is not None and 0 <= number < 1 << 31 else -1
