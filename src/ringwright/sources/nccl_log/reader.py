"""Drive the reading: chunks are scanned on all cores, dirty lines go the careful way, records go to the fold."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ringwright.errors import InputError
from ringwright.native import Scanner
from ringwright.scratch import TemporaryFolder
from ringwright.sources.inputs import Chunk, chunks
from ringwright.sources.looks import looks_like
from ringwright.sources.nccl_log import framework
from ringwright.sources.nccl_log.careful import JOINED, CarefulReader
from ringwright.sources.nccl_log.fold import ROW_COLUMNS, ROWS_IN_MEMORY, RecordSink
from ringwright.sources.nccl_log.segments import PREFIX
from ringwright.sources.nccl_log.state import LogState
from ringwright.sources.source import Source

if TYPE_CHECKING:
    from ringwright.trace import Trace

Progress = Callable[[int], None]
Process = tuple[str, int]
_LONGEST_CAREFUL = 65_536
_PEEK_LINES = 6
_HEAD_BYTES = 4096


def read_log(
    sources: list[Source],
    *,
    keep_rows: int = ROWS_IN_MEMORY,
    every_row: bool = False,
    progress: Progress | None = None,
) -> Trace:
    """Return the Trace of NCCL or RCCL logs. Above ``keep_rows`` records the events come folded, weighted rows; with
    ``every_row`` they go through a temporary folder instead and stay one row each."""
    from ringwright.sources.nccl_log.build import build

    held = TemporaryFolder() if every_row else None
    reader = LogReader(keep_rows, progress, held.path if held else None)
    for source in sources:
        reader.take(source)
    if not reader.lines:
        names = ", ".join(source.name for source in sources[:3])
        raise InputError("the input is empty", where=names, remedy="ringwright summary --sample")
    if not any(reader.state.ledger.total(outcome) for outcome in ("understood", "repaired", "refused")):
        raise _no_log(reader)
    return build(reader.state, reader.fold, reader.ops, [source.name for source in sources], held)


def _no_log(reader: LogReader) -> InputError:
    """Return the error for inputs without a line of NCCL's: it says what they look like."""
    name, head = next(iter(reader.heads.items()))
    others = f", and {len(reader.heads) - 1} more without such a line" if len(reader.heads) > 1 else ""
    return InputError(
        f"no line of NCCL, nor another recording that is known: {looks_like(head)}{others}",
        where=name,
        remedy="run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,GRAPH,NET, or see ringwright doctor",
    )


class LogReader:
    """State of one reading: scanners per thread, the careful reader, the fold."""

    def __init__(
        self, keep_rows: int = ROWS_IN_MEMORY, progress: Progress | None = None, spill: Path | None = None
    ) -> None:
        self.state = LogState()
        self.fold = RecordSink(keep_rows, spill)
        self.ops: list[str] = []
        self.files: list[str] = []
        self.heads: dict[str, bytes] = {}  # what each file begins with
        self.lines = 0
        self._careful = CarefulReader(self.state)
        self._local = threading.local()
        self._progress = progress
        self._first_line = 1
        self._folder = ThreadPoolExecutor(1)
        self._folding: Future[None] | None = None

    def take(self, source: Source) -> None:
        """Read one source to its end."""
        self.files.append(source.name)
        self._first_line = 1
        workers = min(os.cpu_count() or 1, 8)
        with ThreadPoolExecutor(workers) as pool:
            for chunk, scanned in self._scan(pool, chunks(source), workers + 1):
                self._absorb(chunk, scanned)
        self._finish_fold()
        self.state.losses.extend(f"{source.name}: byte {at}: {reason}" for reason, at in source.losses)

    def _scan(
        self, pool: ThreadPoolExecutor, incoming: Iterator[Chunk], ahead: int
    ) -> Iterator[tuple[Chunk, _Scanned]]:
        """Yield scanned chunks in order, a few chunks ahead at most."""
        waiting: deque[tuple[Chunk, Future[_Scanned]]] = deque()
        for chunk in incoming:
            waiting.append((chunk, pool.submit(self._scan_one, chunk)))
            if len(waiting) >= ahead:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()

    def _scan_one(self, chunk: Chunk) -> _Scanned:
        """Scan on a worker. Its scanner is asked here for its new names: elsewhere that would wait for the next scan."""
        known = getattr(self._local, "known", None)
        if known is None:
            known = self._local.known = _ScannerMap(Scanner(framework.NEEDLES), self)
        columns = known.scanner.scan(chunk.data, 0)
        handles = known.scanner.handles(known.told)
        known.told += len(handles)
        return _Scanned(columns, known, handles, known.scanner.ops())

    def _absorb(self, chunk: Chunk, chunk_scan: _Scanned) -> None:
        self.heads.setdefault(chunk.source, chunk.data[:_HEAD_BYTES])
        ledger, file, scanned, known = self.state.ledger, chunk.source, chunk_scan.columns, chunk_scan.known
        records, repaired = len(scanned["line"]), len(scanned["repaired"])
        clean = records - repaired
        lines = int(scanned["lines"])
        first, self._first_line = self._first_line, self._first_line + lines
        scanned["line"] += first
        scanned["careful"][:, 0] += first
        careful = scanned["careful"].tolist()
        self.lines += lines
        if clean:
            ledger.add(file, "understood", "NCCL line", lines=clean)
        if repaired:
            line, offset, length = scanned["repaired"][0].tolist()
            example = _text(chunk.data, offset, length).strip()[:200]
            ledger.add(file, *JOINED, first + line, example, lines=repaired)
        if int(scanned["blank"]):
            ledger.add(file, "other", "blank", lines=int(scanned["blank"]))
        if int(scanned["other"]):
            ledger.add(file, "other", "not an NCCL line", lines=int(scanned["other"]))
        known.learn(chunk_scan)
        for prefix, _, _ in chunk_scan.handles:
            self._careful.know_host(prefix.partition(":")[0])
        launched = known.launched(scanned)
        for line, offset, length in careful:
            self._launch(launched, line)
            self._careful.line(_text(chunk.data, offset, length), (file, line))
            if self._careful.left_a_head:
                self._peek(chunk, offset + length + 1, line + 1)
        self._launch(launched)
        if records:
            self._clean(file, first, scanned, known)
        self._dirty()
        if self._progress:
            self._progress(len(chunk.data))

    def _peek(self, chunk: Chunk, offset: int, line: int) -> None:
        """Look at the lines after a cut one: a tail may hold nothing that marks it as NCCL's."""
        for ahead in range(_PEEK_LINES):
            end = chunk.data.find(b"\n", offset)
            length = (end if end >= 0 else len(chunk.data)) - offset
            if length > 2048 or (end < 0 and not length):
                return
            raw = chunk.data[offset : offset + length]
            if b"NCCL" not in raw and not any(needle in raw for needle in framework.NEEDLES):
                self._careful.unmarked(_text(raw, 0, length), (chunk.source, line + ahead))
            offset += length + 1

    def _launch(self, launched: deque[tuple[int, Process, int]], before: int | None = None) -> None:
        """Believe the first rank that a launcher gives a process, in the order of the lines."""
        while launched and (before is None or launched[0][0] < before):
            _, process, rank = launched.popleft()
            self.state.process_rank.setdefault(process, rank)

    def _clean(self, file: str, first: int, scanned: dict[str, Any], known: _ScannerMap) -> None:
        handle, op = known.translate(scanned, (file, first))
        columns = {name: scanned[name] for name in ROW_COLUMNS if name in scanned}
        columns |= {"handle": handle, "op": op, "file": _full(len(handle), len(self.files) - 1)}
        self._fold(columns)

    def _dirty(self) -> None:
        """Hand the careful path's records on."""
        import numpy as np

        records, self._careful.records = self._careful.records, []
        if not records:
            return
        for record in records:
            self.fold.know(record.handle, self.state.handles[record.handle].nranks)
        columns: dict[str, Any] = {
            name: np.array([getattr(record, name) for record in records], kind)
            for name, kind in ROW_COLUMNS.items()
            if name not in ("op", "file", "entry")
        }
        columns["op"] = np.array([self.op(record.op) for record in records], np.int32)
        columns["file"] = _full(len(records), len(self.files) - 1)
        self._fold(columns)

    def _fold(self, columns: dict[str, Any]) -> None:
        """Join records on a thread of its own, one block behind at most: the joiner needs no interpreter."""
        self._finish_fold()
        self._folding = self._folder.submit(self.fold.add, columns)

    def _finish_fold(self) -> None:
        if self._folding is not None:
            self._folding.result()
            self._folding = None

    def op(self, name: str) -> int:
        """Return the index of a printed operation name."""
        if name not in self.ops:
            self.ops.append(name)
        return self.ops.index(name)


class _Scanned(NamedTuple):
    """What a worker found in one chunk: the columns, and the names that its scanner met first."""

    columns: dict[str, Any]
    known: _ScannerMap
    handles: list[tuple[str, int, int]]
    ops: list[str]


class _ScannerMap:
    """One worker's scanner, and what its handle and operation numbers are to the reader."""

    def __init__(self, scanner: Any, reader: LogReader) -> None:
        self.scanner = scanner
        self.told = 0  # handles that scans have reported; the worker's
        self._reader = reader
        self._names: list[tuple[str, int, int]] = []
        self._keys: list[tuple[str, int, int, int]] = []
        self._handles: list[int] = []
        self._ops: list[int] = []

    def learn(self, scanned: _Scanned) -> None:
        """Take the names that a scan met first."""
        self._names.extend(scanned.handles)
        self._ops.extend(self._reader.op(name) for name in scanned.ops[len(self._ops) :])

    def translate(self, scanned: dict[str, Any], since: tuple[str, int]) -> tuple[Any, Any]:
        """Return the reader's handle and operation of each row."""
        import numpy as np

        state, fold = self._reader.state, self._reader.fold
        for prefix, pointer, nranks in self._names[len(self._handles) :]:
            host, pid, device = _who(prefix)
            handle = state.handle(host, pid, device, pointer, nranks, since)
            fold.know(handle.index, nranks)
            self._handles.append(handle.index)
            self._keys.append((host, pid, pointer, nranks))
        self._count(scanned["handle"])
        handle = np.asarray(self._handles, np.int32)[scanned["handle"]]
        return self._epochs(handle, scanned, since), np.asarray(self._ops, np.int32)[scanned["op"]]

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
                self._reader.state.lines_of[host, pid] += lines

    def _epochs(self, handle: Any, scanned: dict[str, Any], since: tuple[str, int]) -> Any:
        """A pointer may be used again: records after the second init line belong to the second communicator."""
        state = self._reader.state
        for index, key in enumerate(self._keys):
            epochs = state.by_pointer[key]
            if len(epochs) < 2:
                continue
            mine = scanned["handle"] == index
            if not mine.any():
                continue
            for epoch in epochs:
                self._reader.fold.know(epoch, key[3])
                begun = state.handles[epoch].since
                if begun[0] == since[0]:
                    handle[mine & (scanned["line"] >= begun[1])] = epoch
        return handle


def _who(prefix: str) -> tuple[str, int, int]:
    """Return host, pid and device of a clean line's prefix."""
    match = PREFIX.match(prefix + " NCCL INFO ")
    if match is None:
        raise InputError(f"a scanned prefix is none: {prefix!r}")
    return match["host"], int(match["pid"]), int(match["dev"] or -1)


def _text(data: bytes, offset: int, length: int) -> str:
    raw = data[offset : offset + min(length, _LONGEST_CAREFUL)]
    return raw.decode("utf-8", "replace").replace("\x00", "")


def _full(length: int, value: int) -> Any:
    import numpy as np

    return np.full(length, value, np.int32)
