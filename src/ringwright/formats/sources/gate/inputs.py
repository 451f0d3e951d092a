"""From what a user names (files, folders, globs, ``-``) to chunks of whole lines, with bounded memory.

Compressed files (.gz, .zst) are streamed. A line longer than ``LONGEST_LINE`` is cut there and its rest skipped, and
an archive that expands more than ``BOMB_RATIO`` times beyond ``BOMB_FLOOR`` is stopped; both are reported, not raised.
"""

from __future__ import annotations

import glob
import gzip
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from ringwright.formats.sources.gate.addresses import StoredObject, copied, objects, worth_reading
from ringwright.formats.sources.gate.archives import is_archive, unpack
from ringwright.formats.sources.source import BOMB_FLOOR, BOMB_RATIO, Source, is_damage
from ringwright.ground.errors import InputError, MissingExtraError, UsageError
from ringwright.ground.scratch import TemporaryFolder
from ringwright.ground.stores import is_address, shown

# Measured: halving it costs a third more time (thread hand-overs), doubling it too (fresh pages from 32 MiB on).
CHUNK_BYTES = 16 << 20
PIECE_BYTES = 256 << 10  # what an archive gives at a time: damage costs no more than this
LONGEST_LINE = 1 << 20
_COMPRESSED = {".gz", ".zst", ".zstd"}


@dataclass(frozen=True)
class Chunk:
    """Whole lines of one source."""

    source: str
    data: bytes


def find(paths: list[str]) -> list[Source]:
    """Return the sources that ``paths`` name, sorted; raise InputError when a path names nothing."""
    sources: list[Source] = []
    for path in paths:
        if path == "-":
            sources.append(_standard_input())
            continue
        for stored in objects(path) if is_address(path) else ():
            sources.extend(sources_of(stored))
        for file in files(path) if not is_address(path) else ():
            sources.extend(sources_in(file))
    return sources


def files(path: str) -> list[Path]:
    """Return the files that a path names, sorted; InputError where there is none, UsageError for an address."""
    if is_address(path):
        what = "what lies in a store is read as it is, and does not grow"
        raise UsageError(what, where=shown(path), remedy=f"ringwright summary {shown(path)}")
    named = _expand(path)
    if not named:
        raise _nothing(path)
    return named


def sources_in(file: Path) -> list[Source]:
    """Return what a file holds: itself, or the files of an archive."""
    if is_archive(file):
        return unpack(file)
    return [_source(str(file), lambda: file.open("rb"), file.stat().st_size)]


def sources_of(stored: StoredObject) -> list[Source]:
    """Return what an object of a store holds: itself as a stream, or the files of an archive, which is copied."""
    if not is_archive(Path(stored.path)):
        return [_source(stored.name, stored.open, max(stored.size_bytes, 1))]
    held = TemporaryFolder()
    (file,) = copied([stored], held.path)
    return [replace(each, name=stored.name + each.name.removeprefix(str(file))) for each in unpack(file)]


def is_plain(file: Path) -> bool:
    """Say whether a file is what it holds, so that what is added to it can be read alone."""
    return not is_archive(file) and file.suffix.lower() not in _COMPRESSED


def _nothing(path: str) -> InputError:
    if Path(path).is_dir() and any(Path(path).glob("*.parquet")):
        what = "tables without a meta.json: a capture that was not finished, or lost it"
        return InputError(what, where=path, remedy="read the recordings again: ringwright convert LOG -o DIR")
    return InputError(f"nothing at {path}", where=path, remedy="ringwright summary --sample")


def _standard_input() -> Source:
    """Return standard input, which can be looked at before it is read."""
    held = _Held(sys.stdin.buffer)
    return Source("<stdin>", lambda: held, peek=held.peek)


class _Held(io.BufferedReader):
    """A stream that closing leaves open."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream, PIECE_BYTES)  # type: ignore[arg-type]

    def close(self) -> None:
        """Leave the stream to its owner."""


def _expand(path: str) -> list[Path]:
    here = Path(path)
    if here.is_dir():
        return sorted(file for file in here.rglob("*") if file.is_file() and worth_reading(file.relative_to(here)))
    if here.is_file() or here.is_fifo():
        return [here]
    names = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - pathlib takes no absolute patterns
    return [Path(name) for name in names if Path(name).is_file()]


def _source(name: str, opened: Callable[[], BinaryIO], size: int) -> Source:
    suffix = Path(name).suffix.lower()
    if suffix == ".gz":
        return Source(name, lambda: _open_gz(opened()), size)
    if suffix in (".zst", ".zstd"):
        return Source(name, lambda: _open_zst(name, opened), size, is_whole=lambda: _zst_is_whole(opened))
    return Source(name, opened)


def _open_gz(stream: BinaryIO) -> BinaryIO:
    unpacked = gzip.GzipFile(fileobj=stream, mode="rb")
    unpacked.myfileobj = stream  # type: ignore[assignment]  # closed with it
    return unpacked  # type: ignore[return-value]


def _open_zst(name: str, opened: Callable[[], BinaryIO]) -> BinaryIO:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError(".zst needs zstandard", where=name, only=["zstandard"]) from error
    return zstandard.ZstdDecompressor().stream_reader(opened(), closefd=True, read_across_frames=True)


def chunks(source: Source, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Yield whole lines of one source; memory stays near ``chunk_bytes`` whatever the input holds."""
    rest, total = b"", 0
    with source.open() as stream:
        while True:
            block = _read(source, stream, chunk_bytes, total)
            if not block:
                break
            total += len(block)
            if source.compressed_bytes and total > max(BOMB_FLOOR, BOMB_RATIO * source.compressed_bytes):
                source.losses.append(("archive expands beyond all reason, rest not read", total))
                break
            cut = block.rfind(b"\n") + 1
            if not cut:
                rest = _grow(source, rest, block, total)
                continue
            data = b"".join((rest, memoryview(block)[:cut]))
            rest = block[cut:]
            yield Chunk(source.name, data)
    if not any("not read" in reason for reason, _ in source.losses) and not source.is_whole():
        source.losses.append(("archive cut short, rest not read", total))
    if rest:
        yield Chunk(source.name, rest)


def _read(source: Source, stream: BinaryIO, size: int, at: int) -> bytes:
    """Read a block; a damaged archive ends the source and keeps what came before, to the byte."""
    if not source.compressed_bytes:
        return stream.read(size)
    pieces: list[bytes] = []
    read1: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    while size > 0 and not source.is_over:
        try:
            pieces.append(read1(min(PIECE_BYTES, size)))
        except Exception as error:
            if not is_damage(error):
                raise
            source.losses.append((f"input damaged, rest not read: {type(error).__name__}", at))
            source.is_over = True
            break
        size -= len(pieces[-1])
        source.is_over = not pieces[-1]
    return b"".join(pieces)


def _zst_is_whole(opened: Callable[[], BinaryIO]) -> bool:
    """Say whether every frame ends; the decompressor passes over a missing end in silence. Layout: RFC 8878, 3.1."""
    with opened() as stream:
        if not stream.seekable():
            return True  # nobody can say
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        while stream.tell() < size:
            magic = int.from_bytes(stream.read(4), "little")
            if magic >> 4 == 0x184D2A5:  # a frame to be skipped
                stream.seek(int.from_bytes(stream.read(4), "little"), 1)
                continue
            if magic != 0xFD2FB528:
                return False
            flags = int.from_bytes(stream.read(1), "little")
            single = flags >> 5 & 1
            content = 1 if single and not flags >> 6 else (0, 2, 4, 8)[flags >> 6]
            stream.seek((1 - single) + (0, 1, 2, 4)[flags & 3] + content, 1)
            is_last = False
            while not is_last:
                header = stream.read(3)
                if len(header) < 3:
                    return False
                block = int.from_bytes(header, "little")
                is_last = bool(block & 1)
                stream.seek(1 if block >> 1 & 3 == 1 else block >> 3, 1)  # a run holds one byte
            stream.seek(4 * (flags >> 2 & 1), 1)
        return stream.tell() == size


def _grow(source: Source, rest: bytes, block: bytes, at: int) -> bytes:
    """Append to an unfinished line, but never beyond the longest line: the surplus is dropped and reported."""
    if len(rest) >= LONGEST_LINE:
        return rest
    grown = rest + block
    if len(grown) > LONGEST_LINE:
        source.losses.append((f"line longer than {LONGEST_LINE} bytes, its rest skipped", at))
        return grown[:LONGEST_LINE]
    return grown
