"""One input: its name, how to open it, and what was lost on the way."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from ringwright.executors.fan_out import FanOut
    from ringwright.formats.sources.gate.packed import PackedPart

BOMB_RATIO = 500
BOMB_FLOOR = 1 << 30


def is_damage(error: Exception) -> bool:
    """Say whether an archive is damaged; zstandard raises its own type, which exists only when it is installed."""
    return isinstance(error, OSError | EOFError | zlib.error | lzma.LZMAError) or type(error).__name__ == "ZstdError"


@dataclass
class Source:
    """One input: its name, how to open it, and what was lost on the way."""

    name: str
    open: Callable[[], BinaryIO]
    compressed_bytes: int = 0
    losses: list[tuple[str, int]] = field(default_factory=list)  # reason, byte offset
    is_over: bool = False
    is_whole: Callable[[], bool] = lambda: True  # asked at the end, where the decompressor itself does not tell
    peek: Callable[[int], bytes] | None = None  # where the source can be opened only once
    file: Path | None = None  # where it lies, of what was unpacked
    part: Callable[[], PackedPart | None] | None = (
        None  # what its reader made of it elsewhere, packed; None: it did not
    )
    fan: FanOut | None = None  # who made that, and does more
    kinds: tuple[str, ...] | None = None  # of which recordings it is, where that is known already

    def head(self, size_bytes: int) -> bytes:
        """Return the first bytes; none where an archive is damaged that early."""
        if self.peek is not None:
            return self.peek(size_bytes)[:size_bytes]
        try:
            with self.open() as stream:
                return stream.read(size_bytes)
        except Exception as error:
            if not is_damage(error):
                raise
            self.losses.append((f"input damaged, not read: {type(error).__name__}", 0))
            return b""
