"""The files inside what a user named: a file, a compressed file, or a tar of files, read with bounded memory.

A damaged archive ends early and keeps what came before; what was lost stands in ``Source.losses`` and ``Member.losses``.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from ringwright.formats.sources.source import BOMB_FLOOR, BOMB_RATIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ringwright.formats.sources.source import Source

MOST_MEMBERS = 100_000
MOST_WHOLE_BYTES = 2 << 30
_TAR_MAGIC = slice(257, 262)
_PEEK = 512
_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError)

Losses = list[tuple[str, int]]


@dataclass
class Member:
    """One file: its name as shown, its bytes, and what was lost of it (reason, byte offset)."""

    name: str
    stream: BinaryIO
    losses: Losses = field(default_factory=list)

    @property
    def title(self) -> str:
        """The last part of the name, without what a compressor added."""
        return re.split(r"[/\\!:]", self.name)[-1].removesuffix(".gz")


class _Careful(io.RawIOBase):
    """A stream that ends where the archive is damaged or expands beyond reason, and says so."""

    def __init__(
        self, inner: BinaryIO, losses: Losses, compressed_bytes: int, progress: Callable[[int], None] | None
    ) -> None:
        self.inner, self.losses, self.progress = inner, losses, progress
        self.total, self.is_over = 0, False
        self.most = max(BOMB_FLOOR, BOMB_RATIO * compressed_bytes) if compressed_bytes else 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self.is_over:
            return 0
        view = memoryview(buffer).cast("B")
        read: Callable[[int], bytes] = getattr(self.inner, "read1", self.inner.read)
        try:
            data = read(len(view))
        except Exception as error:
            # zstandard raises its own type, which exists only when it is installed
            if not isinstance(error, _DAMAGE) and type(error).__name__ != "ZstdError":
                raise
            self.losses.append((f"input damaged, rest not read: {type(error).__name__}", self.total))
            self.is_over = True
            return 0
        view[: len(data)] = data
        self.total += len(data)
        self.is_over = not data
        if self.progress and data:
            self.progress(len(data))
        if self.most and self.total > self.most:
            self.losses.append(("archive expands beyond all reason, rest not read", self.total))
            self.is_over = True
        return len(data)

    def close(self) -> None:
        self.inner.close()
        super().close()


def members(source: Source, progress: Callable[[int], None] | None = None) -> Iterator[Member]:
    """Yield the files of one source: itself, or what its tar holds (without folders, links and ``._`` shadows)."""
    with _opened(source.open(), source.losses, source.compressed_bytes, progress) as outer:
        stream, head = outer, outer.peek(_PEEK)
        if head[:2] == _GZIP:  # .tgz, or compressed twice
            inner: BinaryIO = gzip.GzipFile(fileobj=stream)  # type: ignore[assignment]
            stream = _opened(inner, source.losses, source.compressed_bytes or 1, None)
            head = stream.peek(_PEEK)
        if head[_TAR_MAGIC] == b"ustar":
            yield from _untar(source, stream)
        else:
            yield Member(source.name, stream, source.losses)


def _opened(
    inner: BinaryIO, losses: Losses, compressed_bytes: int, progress: Callable[[int], None] | None
) -> io.BufferedReader:
    return io.BufferedReader(_Careful(inner, losses, compressed_bytes, progress), 1 << 18)


def _untar(source: Source, stream: BinaryIO) -> Iterator[Member]:
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for number, entry in enumerate(tar):
                if number >= MOST_MEMBERS:
                    source.losses.append((f"more than {MOST_MEMBERS} files in one tar, rest not read", 0))
                    return
                name = entry.name.rsplit("/", 1)[-1]
                content = tar.extractfile(entry) if entry.isfile() and not name.startswith("._") else None
                if content is None:
                    continue
                inner: BinaryIO = content  # type: ignore[assignment]
                if name.endswith(".gz"):
                    inner = gzip.GzipFile(fileobj=inner)  # type: ignore[assignment]
                losses: Losses = []
                yield Member(f"{source.name}:{entry.name}", _opened(inner, losses, entry.size, None), losses)
                source.losses.extend(losses)
    except (*_DAMAGE, ValueError) as error:
        source.losses.append((f"tar damaged, rest not read: {error}", 0))


def up_to(stream: BinaryIO, size: int) -> bytes:
    """Return at most ``size`` bytes, in pieces: a stream asked for all at once sets the memory aside before it reads."""
    pieces, left = [], size
    while left > 0:
        piece = stream.read(min(left, _PIECE))
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def whole(member: Member, most: int = MOST_WHOLE_BYTES) -> bytes:
    """Return all bytes of a member; beyond ``most`` the rest is left and the loss noted."""
    data = up_to(member.stream, most + 1)
    if len(data) > most:
        member.losses.append((f"longer than {most} bytes, rest not read", most))
        return data[:most]
    return data


def lines_without(
    stream: BinaryIO, words: bytes, unless: bytes, longest: int
) -> Iterator[tuple[int, bytes] | tuple[int, None]]:
    """Yield number and bytes of the lines that do not hold ``words``, or hold ``unless`` as well; a line of ``longest`` at most.

    Lines of another reader, a million of them, are passed over without a look at each: numbers go on, and after each block comes
    the number of its last line, with None.
    """
    number = 0
    while block := stream.read(_PIECE):
        block += b"" if block.endswith(b"\n") else stream.readline(longest)
        ends, ours = _ours(block, words, unless)
        for at in ours:
            begin, end = (ends[at - 1] if at else 0), ends[at]
            for piece in range(begin, end, longest):
                yield number + at + 1, block[piece : min(piece + longest, end)]
        number += len(ends)
        yield number, None


def _ours(block: bytes, words: bytes, unless: bytes) -> tuple[list[int], list[int]]:
    """Return where the lines of a block end, and which of them are looked at."""
    import numpy as np

    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    if not len(ends) or ends[-1] < len(block):
        ends = np.append(ends, len(block))
    is_ours = np.ones(len(ends), bool)
    for sought, answer in ((words, False), (unless, True)):
        at = [each.start() for each in re.finditer(re.escape(sought), block)]
        is_ours[np.searchsorted(ends, at, side="right")] = answer
    return ends.tolist(), np.flatnonzero(is_ours).tolist()
