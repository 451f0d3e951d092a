"""A file that grows: only what has been added since the last look is read, in whole lines.

A file is the same as long as its device and inode are, its size does not shrink and what was read last still stands where it
stood; else it is begun anew. The bytes after the last newline wait for the rest of their line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ringwright.formats.sources.gate.inputs import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE_BYTES = 4 << 20
_MARK_BYTES = 64  # of what was read last, to be found there again


class FileState(NamedTuple):
    """What tells a file from another, and a look from the next."""

    device: int
    inode: int
    size: int
    changed_ns: int

    @property
    def identity(self) -> tuple[int, int]:
        """What a file keeps when it is renamed."""
        return self.device, self.inode


def state_of(path: Path) -> FileState | None:
    """Return the state of a file; None where it is gone or cannot be looked at."""
    try:
        about = path.stat()
    except OSError:
        return None
    return FileState(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)


@dataclass
class Tail:
    """How far a file has been read."""

    path: Path
    state: FileState
    is_text: bool = True  # read in whole lines
    begin: int = 0  # bytes at the beginning that are no part of what grows
    offset: int = 0
    rest: bytes = b""
    mark: bytes = b""
    losses: list[tuple[str, int]] = field(default_factory=list)  # since they were last asked for: reason, byte
    _skips: bool = False  # the rest of a line that is too long
    _is_closed: bool = False  # it could not be opened

    @property
    def left_bytes(self) -> int:
        """Bytes that have not been read."""
        return max(0, self.state.size - self.offset)

    def is_replaced(self, now: FileState, path: Path | None = None) -> str:
        """Return why the file, under this path now, is not the one that was read so far, or nothing."""
        if now.identity != self.state.identity:
            return "replaced"
        if now.size < self.offset:
            return "cut short"
        if self.mark and now.changed_ns != self.state.changed_ns:
            before = self._at(self.offset - len(self.mark), len(self.mark), path)
            return "" if before == self.mark else "written anew"
        return ""

    def restart(self, now: FileState) -> None:
        """Begin anew."""
        self.state, self.offset, self.rest, self.mark, self._skips = now, self.begin, b"", b"", False

    def pieces(self, most: int) -> Iterator[bytes]:
        """Yield what has been added, at most about ``most`` bytes of it, in pieces that end with a line."""
        try:
            with self.path.open("rb") as stream:
                if (os.fstat(stream.fileno()).st_dev, os.fstat(stream.fileno()).st_ino) != self.state.identity:
                    return  # replaced in this moment: the next look sees it
                stream.seek(self.offset)
                while most > 0 and (block := stream.read(min(PIECE_BYTES, most))):
                    most -= len(block)
                    self.offset += len(block)
                    self.mark = (self.mark + block)[-_MARK_BYTES:]
                    if piece := self._whole(block):
                        yield piece
        except OSError as error:
            if not self._is_closed:  # told once
                self.losses.append((f"cannot be read: {error.strerror or error}", self.offset))
            self._is_closed = True

    def _whole(self, block: bytes) -> bytes:
        """Return the whole lines of what waits and a block; the rest waits."""
        if not self.is_text:
            return block
        cut = block.rfind(b"\n") + 1
        if not cut:
            self._wait(block)
            return b""
        if self._skips:
            first = block.find(b"\n") + 1
            whole, self._skips = self.rest + b"\n" + block[first:cut], False
        else:
            whole = self.rest + block[:cut]
        self.rest = block[cut:]
        return whole

    def _wait(self, block: bytes) -> None:
        """Let a part of a line wait, but never more than the longest line: the surplus is dropped and told."""
        if self._skips:
            return
        self.rest += block
        if len(self.rest) > LONGEST_LINE * 16:
            self.losses.append((f"line longer than {LONGEST_LINE} bytes, its rest skipped", self.offset))
            self.rest, self._skips = self.rest[:LONGEST_LINE], True

    def end(self) -> bytes:
        """Return the line that never ended, for a file to which nothing more comes."""
        rest, self.rest = self.rest, b""
        return rest

    def head(self, size: int) -> bytes:
        """Return the first bytes as they stand now."""
        return self._at(0, size)

    def _at(self, offset: int, size: int, path: Path | None = None) -> bytes:
        try:
            with (path or self.path).open("rb") as stream:
                stream.seek(offset)
                return stream.read(size)
        except OSError:
            return b""
