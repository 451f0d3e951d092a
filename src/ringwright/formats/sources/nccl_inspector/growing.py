"""NCCL Inspector's files while they grow: whole records are taken as they come."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.formats.sources.gate.rank_progress import Reached, reached, renamed
from ringwright.formats.sources.nccl_inspector import require_records
from ringwright.formats.sources.nccl_inspector.job import InspectorJob
from ringwright.formats.sources.nccl_inspector.records import MOST_RECORD_BYTES, ObjectCutter, RecordContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringwright.model.trace import Trace


@dataclass
class _RecordFile:
    """A file so far: its last header, and an object that has not ended."""

    context: RecordContext = field(default_factory=RecordContext)
    cutter: ObjectCutter = field(default_factory=ObjectCutter)


class GrowingInspector:
    """The Inspector files of one job so far."""

    head_bytes = 0

    def __init__(self) -> None:
        self._job = InspectorJob()
        self._files: dict[str, _RecordFile] = {}
        self._losses: list[str] = []
        self.reached: list[Reached] = []

    def head(self, name: str, head: bytes) -> None:
        """Lines have no header that changes."""

    def take(self, name: str, pieces: Iterable[bytes]) -> None:
        """Take the next whole lines of a file."""
        of = self._files.setdefault(name, _RecordFile())
        for piece in pieces:
            lines = io.BytesIO(piece)
            while line := lines.readline(MOST_RECORD_BYTES):
                for first, data in of.cutter.take(line):
                    self._job.take_object(name, of.context, first, data)

    def lose(self, name: str, reason: str, at: int) -> None:
        """Note what could not be read of a file."""
        self._losses.append(f"{name}: byte {at:,}: {reason}")

    def rename(self, names: Mapping[str, str]) -> None:
        """Go on with files under the names that they have now."""
        self._files = renamed(self._files, names)

    def trace(self, names: list[str]) -> Trace:
        """Return the Trace of what has come so far; InputError where no record was understood."""
        require_records(self._job, names)
        whole = self._job.trace(names, [*self._losses])
        self.reached = reached(whole)
        return whole
