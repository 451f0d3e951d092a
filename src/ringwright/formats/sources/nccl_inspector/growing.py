"""NCCL Inspector's files while they grow: whole records are taken as they come."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from ringwright.formats.sources.gate.rank_progress import Reached, reached, renamed
from ringwright.formats.sources.nccl_inspector.file import InspectorReading
from ringwright.formats.sources.nccl_inspector.job import joined
from ringwright.formats.sources.nccl_inspector.records import MOST_RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringwright.model.trace import Trace


class GrowingInspector:
    """The Inspector files of one job so far."""

    head_bytes = 0

    def __init__(self) -> None:
        self._files: dict[str, InspectorReading] = {}
        self._losses: list[str] = []
        self.reached: list[Reached] = []

    def head(self, name: str, head: bytes) -> None:
        """Lines have no header that changes."""

    def take(self, name: str, pieces: Iterable[bytes]) -> None:
        """Take the next whole lines of a file."""
        reading = self._files.setdefault(name, InspectorReading())
        for piece in pieces:
            lines = io.BytesIO(piece)
            while line := lines.readline(MOST_RECORD_BYTES):
                reading.take(line)

    def lose(self, name: str, reason: str, at: int) -> None:
        """Note what could not be read of a file."""
        self._losses.append(f"{name}: byte {at:,}: {reason}")

    def rename(self, names: Mapping[str, str]) -> None:
        """Go on with files under the names that they have now."""
        self._files = renamed(self._files, names)

    def trace(self, names: list[str]) -> Trace:
        """Return the Trace of what has come so far; InputError where no record was understood."""
        files = [(name, self._files[name].whole()) for name in names if name in self._files]
        whole = joined(names, files, [*self._losses])
        self.reached = reached(whole)
        return whole
