"""One file of the plug-in: header, blocks and status, checked byte by byte; what is damaged is passed over and told."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ringwright.formats.sources.nccl_profiler import records

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

MOST_BYTES = 2 << 30  # of one file; the rest is not read
_READ_BYTES = 1 << 20
_MOST_DIGITS = 10
_HEADER = struct.Struct("<10sHIIIIII4xqq")
_BLOCK = struct.Struct("<4sIIIQqqQQII")
_STATUS = struct.Struct("<IIQQQQQQQQqqII")
_STATUS_KEYS = (
    *(
        "flags",
        "blocks",
        "bytes",
        "dropped_ring",
        "dropped_slots",
        "dropped_threads",
        "lost_disk",
        "unforwarded",
        "stale",
    ),
    *("mono_ns", "real_ns", "reason"),
)


class NotOurFileError(Exception):
    """The file does not begin as ours do; the text says what is wrong."""


@dataclass
class ProfilerFile:
    """What one process wrote: how many records of each kind, and structured arrays of the kinds that become rows."""

    name: str
    pid: int
    mono_ns: int
    real_ns: int
    text: dict[str, str]
    arrays: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)  # empty when the file never came so far
    losses: list[str] = field(default_factory=list)
    damaged_blocks: int = 0
    unknown_records: int = 0
    impossible_records: int = 0  # with a number that the plug-in cannot have written
    drift_ns: int = 0  # how far wall and monotonic clock moved apart while recording
    dropped: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # buffer -> (ring full, too many events at a time)

    @property
    def host(self) -> str:
        """The host's name."""
        return self.text.get("host", "unknown")

    def number(self, name: str) -> int | None:
        """Return a number of the header's text, None where there is none or no machine has such."""
        text = self.text.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS else None

    @property
    def is_closed(self) -> bool:
        """Whether NCCL or the process ended in order."""
        return bool(self.status.get("flags", 0) & 1)


def read_file(source: Source, progress: Callable[[int], None] | None) -> ProfilerFile:
    """Return what a source holds; raise NotOurFileError when nothing of it can be ours."""
    with source.open() as stream:
        reading = ProfilerReading(source.name, stream.read(records.HEADER_BYTES))
        while more := _read(stream, reading.recorded):
            if progress:
                progress(len(more))
            reading.take(more)
            if reading.is_full:
                break
    return reading.whole()


class ProfilerReading:
    """A file as far as it has been read; raises NotOurFileError for a header that cannot be ours."""

    def __init__(self, name: str, head: bytes) -> None:
        self.recorded = header(name, head)
        self._pieces: dict[int, list[np.ndarray[Any, Any]]] = {}
        self._rest = b""
        self._total = self._bad_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether as much has been read as is ever read of a file."""
        return self._total > MOST_BYTES

    def take(self, more: bytes) -> None:
        """Take the next bytes after the header; a block that is not whole waits."""
        if self.is_full:
            return
        self._total += len(more)
        self._rest = self._cut(self._rest + more, is_last=False)

    def whole(self) -> ProfilerFile:
        """Return the file, which ends here."""
        if not self.is_full:
            self._rest = self._cut(self._rest, is_last=True)
        return self.so_far()

    def refresh(self, head: bytes) -> None:
        """Take the header as it stands now: the plug-in writes there how the recording goes."""
        self.recorded.status = header(self.recorded.name, head).status

    def so_far(self) -> ProfilerFile:
        """Return what the file holds up to its last whole block, to be used up."""
        of = self.recorded
        recorded = replace(of, arrays={}, losses=[*of.losses], counts={**of.counts}, dropped={**of.dropped})
        for kind, parts in self._pieces.items():
            if len(parts) > 1:
                parts[:] = [np.concatenate(parts)]
            recorded.arrays[kind] = _possible(parts[0], recorded)
        if self.is_full:
            recorded.losses.append(f"{of.name}: larger than {MOST_BYTES >> 30} GiB, the rest is not read")
        if self._bad_bytes:
            recorded.losses.append(f"{of.name}: {self._bad_bytes} bytes are damaged or cut off and were passed over")
        return recorded

    def _cut(self, data: bytes, *, is_last: bool) -> bytes:
        """Take each whole block, after damage the next that is whole; return what is left."""
        at, recorded = 0, self.recorded
        while (size := _whole(data, at, is_last=is_last)) is not None:
            if size:
                _note(data, at, recorded)
                _split(memoryview(data)[at + _BLOCK.size : at + size], self._pieces, recorded)
                at += size
                continue
            found = data.find(records.BLOCK_MAGIC, at + 1)
            step = (found if found >= 0 else max(at + 1, len(data) - 3)) - at
            recorded.damaged_blocks += self._bad_bytes == 0 or data[at : at + 4] == records.BLOCK_MAGIC
            self._bad_bytes += step
            at += step
        return data[at:]


def _possible(rows: np.ndarray[Any, Any], recorded: ProfilerFile) -> np.ndarray[Any, Any]:
    """Return the records whose numbers can be; the others are counted."""
    good = np.ones(len(rows), bool)
    for name, (least, most) in records.RANGES.items():
        if name in (rows.dtype.names or ()):
            field = rows[name] if rows[name].ndim > 1 else rows[name][:, None]  # waits are several
            low = np.zeros_like(field, bool) if field.dtype.kind == "u" else field < least
            good &= ~(low | (field > most)).any(axis=1)
    recorded.impossible_records += int(len(rows) - good.sum())
    return rows[good]


def header(name: str, head: bytes) -> ProfilerFile:
    """Return a file with what its header says; raise NotOurFileError for one that cannot be ours."""
    if len(head) < _HEADER.size or not head.startswith(records.MAGIC):
        raise NotOurFileError("not a file of the NCCL profiler plug-in")
    _, version, size, pid, text_at, status_at, waits, _, mono_ns, real_ns = _HEADER.unpack_from(head)
    if version != records.VERSION or size != records.HEADER_BYTES or waits != len(records.WAITS):
        raise NotOurFileError(f"version {version} of the plug-in's file, this release reads {records.VERSION}")
    if len(head) < size:
        raise NotOurFileError("the file ends within its header")
    if not all(0 <= ns <= records.MOST_NS for ns in (mono_ns, real_ns)):
        raise NotOurFileError("the clocks in its header tell no time")
    lines = head[text_at:status_at].split(b"\0", 1)[0].decode("utf-8", "replace").splitlines()
    text = dict(line.split("=", 1) for line in lines if "=" in line)
    recorded = ProfilerFile(name, pid, mono_ns, real_ns, text)
    status = head[records.STATUS_AT : records.STATUS_AT + _STATUS.size]
    crc, *values = _STATUS.unpack(status)
    if crc and crc == zlib.crc32(status[4:]):
        recorded.status = dict(zip(_STATUS_KEYS, values, strict=False))
    return recorded


def _read(stream: BinaryIO, recorded: ProfilerFile) -> bytes:
    try:
        return stream.read(_READ_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        recorded.losses.append(f"{recorded.name}: the rest cannot be read: {type(error).__name__}")
        return b""


def _whole(data: bytes, at: int, *, is_last: bool) -> int | None:
    """Return the size of the block at ``at``, 0 when it is none, None when more bytes are needed to tell."""
    left = len(data) - at
    if left <= 0 or (left < _BLOCK.size and not is_last):
        return None
    if left < _BLOCK.size:
        return 0
    magic, size, crc, *_, header_crc = _BLOCK.unpack_from(data, at)
    if magic != records.BLOCK_MAGIC or size > records.MOST_BLOCK_BYTES:
        return 0
    if zlib.crc32(data[at : at + _BLOCK.size - 4]) != header_crc:
        return 0
    if left < _BLOCK.size + size:
        return 0 if is_last else None
    start = at + _BLOCK.size
    return _BLOCK.size + size if zlib.crc32(data[start : start + size]) == crc else 0


def _note(data: bytes, at: int, recorded: ProfilerFile) -> None:
    _, _, _, buffer, _, mono_ns, real_ns, ring, slots, _, _ = _BLOCK.unpack_from(data, at)
    recorded.dropped[buffer] = (ring, slots)
    recorded.drift_ns = (real_ns - mono_ns) - (recorded.real_ns - recorded.mono_ns)


def _split(payload: memoryview, pieces: dict[int, list[np.ndarray[Any, Any]]], recorded: ProfilerFile) -> None:
    """Sort the records of a block by kind; a kind or size we do not know is counted and passed over."""
    data = np.frombuffer(payload, np.uint8)
    places: dict[int, list[int]] = {}
    at, end = 0, len(payload)
    while at + 8 <= end:
        kind, words = payload[at], payload[at + 1]
        if not words:
            recorded.unknown_records += 1
            break
        if kind:
            places.setdefault(kind, []).append(at)
        at += words * 8
    for kind, starts in places.items():
        layout = records.LAYOUTS.get(kind)
        offsets = np.array(starts)
        if layout is not None:
            offsets = offsets[(data[offsets + 1] * np.int64(8) == layout.itemsize) & (offsets + layout.itemsize <= end)]
            recorded.counts[kind] = recorded.counts.get(kind, 0) + len(offsets)
        recorded.unknown_records += len(starts) - (len(offsets) if layout is not None else 0)
        if layout is not None and kind in records.KEPT:
            gathered = data[offsets[:, None] + np.arange(layout.itemsize)]
            pieces.setdefault(kind, []).append(np.ascontiguousarray(gathered).view(layout)[:, 0])
