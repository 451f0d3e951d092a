"""Sorts the events of a trace file into columns, a batch at a time; a batch with an odd event goes one by one."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ringwright.formats.sources.kineto import marks
from ringwright.formats.sources.kineto.columns import LIMIT, EventColumns, RankFile, whole
from ringwright.formats.sources.kineto.labels import label_facts
from ringwright.formats.sources.kineto.pieces import Reading
from ringwright.formats.sources.kineto.records import (
    BAD_JSON,
    CommArgs,
    Event,
    decode_call,
    decode_comm,
    decode_kernel,
    decode_label,
)
from ringwright.formats.sources.kineto.stream import batches
from ringwright.formats.sources.source import Source

KERNEL, COPY, CALL, HOST, NOTE, PYTHON = range(6)
CATEGORIES = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": COPY,
    "Memcpy": COPY,
    "gpu_memset": COPY,
    "Memset": COPY,
    "cuda_runtime": CALL,
    "Runtime": CALL,
    "cuda_driver": CALL,
    "hip_runtime": CALL,
    "hip_driver": CALL,
    "xpu_runtime": CALL,
    "privateuse1_runtime": CALL,
    "mtia_runtime": CALL,
    "cpu_op": HOST,
    "Operator": HOST,
    "operator": HOST,
    "user_annotation": NOTE,
    "python_function": PYTHON,
}
LAUNCH, SYNC, PASS = range(3)
ROWS_PER_FILE = 8_000_000  # of each kind; what lies beyond is counted as lost
NAMES = 1 << 17
TOO_MANY = "(one of the names beyond 131,072)"
LONGEST_NAME = 2048
RECORD = "record_param_comms"
_LABELS = ("nccl:", "c10d:", "_c10d", "gloo:", "mpi:", "ucc:", "xccl:", "rccl:", "hccl:", "symm_")
_LABEL_STARTS = {label[:4] for label in _LABELS}
_PID = 1 << 40


def gather(source: Source, progress: Callable[[int], None] | None = None) -> RankFile:
    """Read one source; raises nothing but what opening the source raises."""
    rank_file = RankFile(Reading(source.name))
    sorter = _Sorter(rank_file)
    for events in batches(source, rank_file.reading, progress):
        sorter.take(events, rank_file.reading.events - len(events))
    return rank_file


class _Sorter:
    """Puts events into the tables of a file."""

    def __init__(self, rank_file: RankFile) -> None:
        self.rank_file = rank_file
        self._names: dict[str, int] = {}
        self._threads: dict[tuple[Any, Any], int] = {}
        self._calls: dict[str, int] = {}
        self._marks: dict[tuple[str, bool], int] = {}

    def take(self, events: list[Event], first: int) -> None:
        """Sort a batch, whose first event is number ``first`` of the file."""
        devices, launches = _Batch(), _Batch()
        for line, event in enumerate(events, first):
            cat = event.cat
            kind = CATEGORIES.get(cat) if type(cat) is str else None
            if kind is None or event.ph != "X" or type(event.name) is not str:
                continue
            if kind <= COPY:
                devices.add(event, line)
                devices.copies.append(kind)
            elif kind == CALL:
                self._call(event, line, launches)
            elif kind == HOST:
                self._host(event, line)
            elif kind == NOTE:
                self._note(event, line)
            elif event.name.startswith(marks.MODULE):
                self._mark(event, line, is_label=True)
        if not self._devices(devices):
            for event, line, is_copy in zip(devices.events, devices.lines, devices.copies, strict=True):
                self._device(event, line, is_copy=bool(is_copy))
        if not self._launches(launches):
            for event, line in zip(launches.events, launches.lines, strict=True):
                self._launch(event, line)

    def _call(self, event: Event, line: int, launches: _Batch) -> None:
        kind = self._calls.get(event.name)
        if kind is None:
            kind = _call_kind(event.name)
            if len(self._calls) < NAMES:
                self._calls[event.name] = kind
        if kind == LAUNCH:
            launches.add(event, line)
        elif kind == SYNC:
            self._take_in(self.rank_file.syncs, event, line)

    def _devices(self, batch: _Batch) -> bool:
        """Append all kernels and copies of a batch at once; False, and nothing is done, when one of them is odd."""
        rank_file, table, before = self.rank_file, self.rank_file.kernels, len(self.rank_file.kernels)
        times = _times(batch.events)
        if times is None or before + len(batch.events) > ROWS_PER_FILE:
            return False
        try:
            args = [decode_kernel(event.args) for event in batch.events]
        except BAD_JSON:
            return False
        self._extend(table, batch, times)
        table.is_copy.extend(batch.copies)
        table.correlation.extend(_column("q", [each.correlation for each in args], -1))
        table.external.extend(_column("q", [each.external for each in args], -1))
        streams = [event.tid if a.stream is None else a.stream for a, event in zip(args, batch.events, strict=True)]
        table.stream.extend(_column("q", streams, -1))
        table.device.extend(_column("i", [each.device for each in args], -1))
        grids = [each.grid for each in args]
        table.channels.extend(_column("i", [grid[0] if type(grid) is list and grid else 0 for grid in grids], -1))
        for number, each in enumerate(args, before):
            if each.collective is not None or each.group_name is not None or each.group_id is not None:
                rank_file.meta[number] = each
        return True

    def _launches(self, batch: _Batch) -> bool:
        """Append all launching calls of a batch at once, as above."""
        table = self.rank_file.calls
        times = _times(batch.events)
        if times is None or len(table) + len(batch.events) > ROWS_PER_FILE:
            return False
        try:
            numbers = array("q", [decode_call(event.args).correlation for event in batch.events])
        except (TypeError, *BAD_JSON):
            return False
        self._extend(table, batch, times)
        table.correlation.extend(numbers)
        table.thread.extend([self._thread(event.pid, event.tid) for event in batch.events])
        return True

    def _extend(self, table: EventColumns, batch: _Batch, times: tuple[array[float], array[float]]) -> None:
        table.ts.extend(times[0])
        table.dur.extend(times[1])
        get, name = self._names.get, self._name
        table.name.extend([name(event.name) if (n := get(event.name)) is None else n for event in batch.events])
        table.line.extend(batch.lines)

    def _device(self, event: Event, line: int, *, is_copy: bool) -> None:
        table = self.rank_file.kernels
        if not self._time(table, event, line):
            return
        try:
            args = decode_kernel(event.args)
        except BAD_JSON:
            args = None
            self.rank_file.bad += 1
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
            self.rank_file.meta[len(table) - 1] = args

    def _launch(self, event: Event, line: int) -> None:
        try:
            number = whole(decode_call(event.args).correlation)
        except BAD_JSON:
            number = None
        if number is None:
            self.rank_file.bad += 1
        elif self._take_in(self.rank_file.calls, event, line):
            self.rank_file.calls.correlation.append(number)

    def _host(self, event: Event, line: int, *, is_label: bool = False) -> None:
        name = event.name
        self._mark(event, line, is_label=is_label)
        if name == RECORD:
            try:
                args = decode_comm(event.args)
            except BAD_JSON:
                args = CommArgs()
                self.rank_file.bad += 1
            if self._take_in(self.rank_file.records, event, line):
                self.rank_file.record_args.append(args)
        elif (
            name[:4] in _LABEL_STARTS and name.startswith(_LABELS) and self._take_in(self.rank_file.labels, event, line)
        ):
            self._label(event)

    def _label(self, event: Event) -> None:
        """Keep what a label says of its tensors: how many elements, and of which type."""
        try:
            said = label_facts(event.name, decode_label(event.args))
        except BAD_JSON:
            self.rank_file.bad += 1
            return
        if said is not None:
            self.rank_file.label_args[len(self.rank_file.labels) - 1] = said

    def _note(self, event: Event, line: int) -> None:
        """A user annotation: a step, a phase, or (newer releases) the label of a collective."""
        if event.name.startswith(("ProfilerStep", "## ")):
            self._take_in(self.rank_file.notes, event, line)
        else:
            self._host(event, line, is_label=True)

    def _mark(self, event: Event, line: int, *, is_label: bool) -> None:
        """Keep what says where launches belong; of the backward pass only from when to when each thread was in it."""
        key = (event.name, is_label)
        kind = self._marks.get(key)
        if kind is None:
            kind = marks.kind_of(event.name, is_label=is_label)
            if len(self._marks) < NAMES:
                self._marks[key] = kind
        if kind == marks.BACKWARD:
            self._backward(event, line)
        elif kind != marks.NOTHING:
            table = self.rank_file.marks if kind == marks.LABEL else self.rank_file.operators
            self._take_in(table, event, line)

    def _backward(self, event: Event, line: int) -> None:
        ts, dur = event.ts, event.dur
        if type(ts) in (int, float) and type(dur) in (int, float) and 0 <= dur < _PID and -LIMIT < ts < LIMIT:
            thread = self._thread(event.pid, event.tid)
            first, last, at = self.rank_file.backward.get(thread, (ts, ts + dur, line))
            self.rank_file.backward[thread] = (min(first, ts), max(last, ts + dur), at)

    def _take_in(self, table: EventColumns, event: Event, line: int) -> bool:
        """Append the columns that all tables of the host have; False when the event has no usable time."""
        if not self._time(table, event, line):
            return False
        table.thread.append(self._thread(event.pid, event.tid))
        return True

    def _time(self, table: EventColumns, event: Event, line: int) -> bool:
        """Append time, name and line."""
        ts, dur = event.ts, event.dur
        if dur is None:
            dur = 0.0
        is_number = (type(ts) is float or type(ts) is int) and (type(dur) is float or type(dur) is int)
        if not is_number or not 0 <= dur < _PID or not -LIMIT < ts < LIMIT:
            self.rank_file.bad += 1
            return False
        if len(table.ts) >= ROWS_PER_FILE:
            self.rank_file.dropped += 1
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
            number = self._names.setdefault(name, len(self.rank_file.names))
            if number == len(self.rank_file.names):
                self.rank_file.names.append(name)
        return number

    def _thread(self, pid: Any, tid: Any) -> int:
        key = (pid, tid) if type(pid) in (int, str) and type(tid) in (int, str) else (None, None)
        number = self._threads.get(key)
        if number is None:
            if len(self._threads) >= NAMES:
                return 0
            number = self._threads[key] = len(self.rank_file.threads)
            self.rank_file.threads.append(key)
        return number


@dataclass
class _Batch:
    """Events of one kind with their numbers in the file."""

    events: list[Event] = field(default_factory=list)
    lines: array[int] = field(default_factory=lambda: array("q"))
    copies: array[int] = field(default_factory=lambda: array("b"))

    def add(self, event: Event, line: int) -> None:
        """Append an event."""
        self.events.append(event)
        self.lines.append(line)


def _times(events: list[Event]) -> tuple[array[float], array[float]] | None:
    """Return start and duration of events, None when one of them has none that can be used."""
    try:
        ts, dur = array("d", [event.ts for event in events]), array("d", [event.dur for event in events])
    except (TypeError, OverflowError):
        return None
    if events and not (min(dur) >= 0 and max(dur) < _PID and min(ts) > -LIMIT and max(ts) < LIMIT):
        return None
    return ts, dur


def _column(kind: str, values: list[Any], other: int) -> array[int]:
    """Return whole numbers as a column; what is none, or too large, becomes ``other``."""
    try:
        return array(kind, values)
    except (TypeError, OverflowError):
        limit = 1 << (31 if kind == "i" else 62)
        numbers = [whole(value) for value in values]
        return array(kind, [other if n is None or not -limit <= n < limit else n for n in numbers])


def _call_kind(name: str) -> int:
    if re.search(r"StreamWaitEvent|Synchronize$", name):
        return SYNC
    return LAUNCH if re.search(r"[Ll]aunch|Memcpy|Memset|memcpy|memset", name) else PASS


def _or(value: int | None, other: int) -> int:
    return other if value is None else value


def _small(value: Any) -> int:
    number = whole(value)
    return number if number is not None and 0 <= number < 1 << 31 else -1
