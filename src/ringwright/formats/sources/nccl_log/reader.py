"""Drive the reading: chunks are scanned on all cores, dirty lines go the careful way, records go to the fold."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.gate.inputs import Chunk, chunks
from ringwright.formats.sources.nccl_log import framework
from ringwright.formats.sources.nccl_log.dirty_lines import JOINED, CarefulReader, Heads
from ringwright.formats.sources.nccl_log.fold import ROW_COLUMNS, ROWS_IN_MEMORY, RecordSink
from ringwright.formats.sources.nccl_log.scanner_map import Process, ScannedChunk, ScannerMap
from ringwright.formats.sources.nccl_log.state import LogState
from ringwright.formats.sources.other_files import looks_like
from ringwright.formats.sources.source import Source
from ringwright.ground.errors import InputError
from ringwright.ground.scratch import TemporaryFolder
from ringwright.native import Scanner

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

Progress = Callable[[int], None]
_LONGEST_CAREFUL = 65_536
_PEEK_LINES = 6
_HEAD_BYTES = 4096


def read_log(
    sources: list[Source], *, keep_rows: int = ROWS_IN_MEMORY, every_row: bool = False, progress: Progress | None = None
) -> Trace:
    """Return the Trace of NCCL or RCCL logs. Above ``keep_rows`` records the events come folded, weighted rows; with
    ``every_row`` they go through a temporary folder instead and stay one row each."""
    from ringwright.formats.sources.nccl_log.build import build

    held = TemporaryFolder() if every_row else None
    reader = LogReader(keep_rows, progress, held.path if held else None)
    for source in sources:
        reader.take(source)
    names = [source.name for source in sources]
    require_log(reader, names)
    return build(reader.state, reader.fold, reader.ops, names, held)


def require_log(reader: LogReader, names: list[str]) -> None:
    """Raise InputError where no line of NCCL's has been read."""
    if not reader.lines:
        raise InputError("the input is empty", where=", ".join(names[:3]), remedy="ringwright summary --sample")
    if not any(reader.state.ledger.total(outcome) for outcome in ("understood", "repaired", "refused")):
        raise _no_log(reader)


_OURS = (b"ProcessGroupNCCL", b"NCCL INFO", b"opCount", b"busbw")


def _no_log(reader: LogReader) -> InputError:
    """Return the error for inputs without a line of NCCL's: it says what they look like."""
    name, head = next(iter(reader.heads.items()))
    if (word := next((each for each in _OURS if each in head), None)) is not None:
        return InputError(
            f"no whole line of NCCL's or PyTorch's in text that holds {word.decode()}: its lines were cut or broken",
            where=name,
            remedy="give the file itself, or paste it from a window wide enough not to break lines",
        )
    others = f", and {len(reader.heads) - 1} more without such a line" if len(reader.heads) > 1 else ""
    return InputError(
        f"no line of NCCL, nor another recording that is known: {looks_like(head)}{others}",
        where=name,
        remedy="run the job with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,GRAPH,NET, or see ringwright doctor",
    )


@dataclass
class _LogFile:
    """How far one file has been read: its number, the next line's, and what waits there for its other part."""

    number: int
    careful: CarefulReader
    line: int = 1
    ahead: list[_LookAhead] = field(default_factory=list)


@dataclass
class _LookAhead:
    """A cut line after which fewer lines were looked at than may hold its tail, because the chunk ended."""

    left: int
    heads: Heads


class LogReader:
    """State of one reading: scanners per thread, a careful reader per file, the fold.

    Files may come in pieces, in turns: what a file says does not depend on where its pieces end, nor on the other files.
    """

    def __init__(
        self,
        keep_rows: int = ROWS_IN_MEMORY,
        progress: Progress | None = None,
        spill: Path | None = None,
        sink: RecordSink | None = None,
    ) -> None:
        self.state = LogState()
        self.fold = sink if sink is not None else RecordSink(keep_rows, spill)
        self.ops: list[str] = []
        self.files: dict[str, _LogFile] = {}
        self._begun = 0
        self._is_little = False
        self.heads: dict[str, bytes] = {}  # what each file begins with
        self.lines = 0
        self._hosts: set[str] = set()
        self._local = threading.local()
        self._progress = progress
        self._folder = ThreadPoolExecutor(1)
        self._folding: Future[None] | None = None

    def take(self, source: Source) -> None:
        """Read one source from its beginning to its end."""
        self._begin(source.name)
        self.feed(source.name, chunks(source))
        self.state.losses.extend(f"{source.name}: byte {at}: {reason}" for reason, at in source.losses)

    def feed(self, name: str, pieces: Iterable[Chunk]) -> None:
        """Take the next whole lines of a file."""
        self.files.get(name) or self._begin(name)
        workers = min(os.cpu_count() or 1, 8)
        with ThreadPoolExecutor(workers) as pool:
            for chunk, scanned in self._scan(pool, iter(pieces), workers + 1):
                self._absorb(chunk, scanned)
        self._finish_fold()

    def feed_little(self, name: str, lines: bytes) -> None:
        """Take the next whole lines of a file, so few that a second thread is not worth its start."""
        chunk = Chunk(name, lines)
        self._is_little = True
        self._absorb(chunk, self._scan_one(chunk))
        self._is_little = False

    def _begin(self, name: str) -> _LogFile:
        self.files[name] = _LogFile(self._begun, CarefulReader(self.state, self._hosts))
        self._begun += 1
        return self.files[name]

    def _scan(
        self, pool: ThreadPoolExecutor, incoming: Iterator[Chunk], ahead: int
    ) -> Iterator[tuple[Chunk, ScannedChunk]]:
        """Yield scanned chunks in order, a few chunks ahead at most."""
        waiting: deque[tuple[Chunk, Future[ScannedChunk]]] = deque()
        for chunk in incoming:
            waiting.append((chunk, pool.submit(self._scan_one, chunk)))
            if len(waiting) >= ahead:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()

    def _scan_one(self, chunk: Chunk) -> ScannedChunk:
        """Scan on a worker. Its scanner is asked here for its new names: elsewhere that would wait for the next scan."""
        known = getattr(self._local, "known", None)
        if known is None:
            scanner = Scanner(framework.NEEDLES)
            known = self._local.known = ScannerMap(scanner, self.state, self.fold, self.op)
        columns = known.scanner.scan(chunk.data, 0)
        handles = known.scanner.handles(known.told)
        known.told += len(handles)
        return ScannedChunk(columns, known, handles, known.scanner.ops())

    def _absorb(self, chunk: Chunk, chunk_scan: ScannedChunk) -> None:
        self.heads.setdefault(chunk.source, chunk.data[:_HEAD_BYTES])
        scanned, known = chunk_scan.columns, chunk_scan.known
        of = self.files.get(chunk.source) or self._begin(chunk.source)
        first = of.line
        scanned["line"] += first
        scanned["careful"][:, 0] += first
        self._account(chunk, scanned, first)
        fresh = known.learn(chunk_scan)
        for prefix, _, _ in chunk_scan.handles:
            of.careful.know_host(prefix.partition(":")[0])
        launched = known.launched(scanned)
        self._look_on(chunk, of)
        for line, offset, length in scanned["careful"].tolist():
            self._launch(launched, line)
            known.meet(fresh, chunk.source, line)
            of.careful.line(_text(chunk.data, offset, length), (chunk.source, line))
            if of.careful.left_a_head:
                self._peek(chunk, offset + length + 1, line + 1, of, _LookAhead(_PEEK_LINES, of.careful.heads()))
        self._launch(launched)
        known.meet(fresh, chunk.source)
        of.line += int(scanned["lines"])
        if len(scanned["line"]):
            self._clean(chunk.source, of, scanned, known)
        self._dirty(of)
        if self._progress:
            self._progress(len(chunk.data))

    def _account(self, chunk: Chunk, scanned: dict[str, Any], first: int) -> None:
        """Enter what needed no care into the ledger."""
        ledger, file, repaired = self.state.ledger, chunk.source, len(scanned["repaired"])
        clean = len(scanned["line"]) - repaired
        self.lines += int(scanned["lines"])
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

    def _look_on(self, chunk: Chunk, of: _LogFile) -> None:
        """Go on where a chunk ended among the lines after a cut one."""
        waiting, of.ahead = of.ahead, []
        for ahead in waiting:
            self._peek(chunk, 0, of.line, of, ahead)

    def _peek(self, chunk: Chunk, offset: int, line: int, of: _LogFile, ahead: _LookAhead) -> None:
        """Look at the lines after a cut one: a tail may hold nothing that marks it as NCCL's."""
        while ahead.left:
            end = chunk.data.find(b"\n", offset)
            length = (end if end >= 0 else len(chunk.data)) - offset
            if end < 0 and length <= 0:
                of.ahead.append(ahead)
                return
            if length > 2048:
                return
            raw = chunk.data[offset : offset + length]
            if b"NCCL" not in raw and not any(needle in raw for needle in framework.NEEDLES):
                of.careful.unmarked(_text(raw, 0, length), (chunk.source, line), ahead.heads)
            offset, line = offset + length + 1, line + 1
            ahead.left -= 1

    def _launch(self, launched: deque[tuple[int, Process, int]], before: int | None = None) -> None:
        """Believe the first rank that a launcher gives a process, in the order of the lines."""
        while launched and (before is None or launched[0][0] < before):
            _, process, rank = launched.popleft()
            self.state.process_rank.setdefault(process, rank)

    def _clean(self, file: str, of: _LogFile, scanned: dict[str, Any], known: ScannerMap) -> None:
        handle, op = known.translate(scanned, file)
        columns = {name: scanned[name] for name in ROW_COLUMNS if name in scanned}
        columns |= {"handle": handle, "op": op, "file": _full(len(handle), of.number)}
        self._fold(columns)

    def _dirty(self, of: _LogFile) -> None:
        """Hand the careful path's records on."""
        import numpy as np

        records, of.careful.records = of.careful.records, []
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
        columns["file"] = _full(len(records), of.number)
        self._fold(columns)

    def _fold(self, columns: dict[str, Any]) -> None:
        """Join records on a thread of its own, one block behind at most: the joiner needs no interpreter."""
        self._finish_fold()
        if self._is_little:
            self.fold.add(columns)
        else:
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


def _text(data: bytes, offset: int, length: int) -> str:
    raw = data[offset : offset + min(length, _LONGEST_CAREFUL)]
    return raw.decode("utf-8", "replace").replace("\x00", "")


def _full(length: int, value: int) -> Any:
    import numpy as np

    return np.full(length, value, np.int32)
