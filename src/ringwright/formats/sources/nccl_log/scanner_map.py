"""One worker's scanner, and what its handle and operation numbers are to the reader.

A scanner numbers communicators and operations for itself, as it meets them; workers meet them in orders of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ringwright.formats.sources.nccl_log.fold import RecordSink
from ringwright.formats.sources.nccl_log.segments import PREFIX
from ringwright.formats.sources.nccl_log.state import LogState
from ringwright.ground.errors import InputError

Process = tuple[str, int]


class ScannedChunk(NamedTuple):
    """What a worker found in one chunk: the columns, and the names that its scanner met first."""

    columns: dict[str, Any]
    known: ScannerMap
    handles: list[tuple[str, int, int]]
    ops: list[str]


class ScannerMap:
    """One worker's scanner, and what its handle and operation numbers are to the reader."""

    def __init__(self, scanner: Any, state: LogState, fold: RecordSink, op: Callable[[str], int]) -> None:
        self.scanner = scanner
        self.told = 0  # handles that scans have reported; the worker's
        self._state, self._fold, self._op = state, fold, op
        self._names: list[tuple[str, int, int]] = []
        self._keys: list[tuple[str, int, int, int]] = []
        self._handles: list[int] = []
        self._ops: list[int] = []

    def learn(self, scanned: ScannedChunk) -> deque[tuple[int, int]]:
        """Take the names that a scan met first; return (line, number) of each new handle, in the order of the lines.

        They are met in this order, between the other lines: so a communicator's number does not depend on where chunks end.
        """
        import numpy as np

        self._ops.extend(self._op(name) for name in scanned.ops[len(self._ops) :])
        known = len(self._handles)
        self._names.extend(scanned.handles)
        self._handles.extend([-1] * len(scanned.handles))
        for prefix, pointer, nranks in scanned.handles:
            host, pid, _ = _who(prefix)
            self._keys.append((host, pid, pointer, nranks))
        if not scanned.handles:
            return deque()
        rows = np.flatnonzero(scanned.columns["handle"] >= known)
        numbers, first = np.unique(scanned.columns["handle"][rows], return_index=True)
        return deque(sorted(zip(scanned.columns["line"][rows[first]].tolist(), numbers.tolist(), strict=True)))

    def meet(self, fresh: deque[tuple[int, int]], file: str, before: int | None = None) -> None:
        """Give the state the new handles of a chunk whose first row stands before a line; all without one."""
        while fresh and (before is None or fresh[0][0] < before):
            line, number = fresh.popleft()
            prefix, pointer, nranks = self._names[number]
            host, pid, device = _who(prefix)
            handle = self._state.handle(host, pid, device, pointer, nranks, (file, line))
            self._fold.know(handle.index, nranks)
            self._handles[number] = handle.index

    def translate(self, scanned: dict[str, Any], file: str) -> tuple[Any, Any]:
        """Return the reader's handle and operation of each row."""
        import numpy as np

        self._count(scanned["handle"])
        handle = np.asarray(self._handles, np.int32)[scanned["handle"]]
        return self._epochs(handle, scanned, file), np.asarray(self._ops, np.int32)[scanned["op"]]

    def launched(self, scanned: dict[str, Any]) -> deque[tuple[int, Process, int]]:
        """Return (line, process, rank) where a launcher first names a handle's rank, in the order of the lines."""
        import numpy as np

        rows = np.flatnonzero(scanned["launch_rank"] >= 0)
        if not len(rows):
            return deque()
        numbers, first = np.unique(scanned["handle"][rows], return_index=True)
        launched: list[tuple[int, Process, int]] = []
        for number, row in zip(numbers.tolist(), rows[first].tolist(), strict=True):
            host, pid, _ = _who(self._names[number][0])
            launched.append((int(scanned["line"][row]), (host, pid), int(scanned["launch_rank"][row])))
        return deque(sorted(launched))

    def _count(self, handle: Any) -> None:
        import numpy as np

        for index, lines in enumerate(np.bincount(handle).tolist()):
            if lines:
                host, pid, _, _ = self._keys[index]
                self._state.lines_of[host, pid] += lines

    def _epochs(self, handle: Any, scanned: dict[str, Any], file: str) -> Any:
        """A pointer may be used again: records after the second init line belong to the second communicator."""
        state = self._state
        for index, key in enumerate(self._keys):
            epochs = state.by_pointer[key]
            if len(epochs) < 2:
                continue
            mine = scanned["handle"] == index
            if not mine.any():
                continue
            for epoch in epochs:
                self._fold.know(epoch, key[3])
                begun = state.handles[epoch].since
                if begun[0] == file:
                    handle[mine & (scanned["line"] >= begun[1])] = epoch
        return handle


def _who(prefix: str) -> tuple[str, int, int]:
    """Return host, pid and device of a clean line's prefix."""
    match = PREFIX.match(prefix + " NCCL INFO ")
    if match is None:
        raise InputError(f"a scanned prefix is none: {prefix!r}")
    return match["host"], int(match["pid"]), int(match["dev"] or -1)
