"""The profiler plug-in's files while they grow: whole blocks are taken as they come, the header is read anew at each look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.formats.sources.gate.rank_progress import Reached, reached, renamed
from ringwright.formats.sources.nccl_profiler import records
from ringwright.formats.sources.nccl_profiler.file import NotOurFileError, ProfilerReading
from ringwright.formats.sources.nccl_profiler.reader import made, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace


class GrowingProfiler:
    """The plug-in's files of one job so far."""

    head_bytes = records.HEADER_BYTES  # what is written again and again, before the bytes that are only added to

    def __init__(self) -> None:
        self._files: dict[str, ProfilerReading | NotOurFileError] = {}
        self._losses: list[str] = []
        self.reached: list[Reached] = []

    def head(self, name: str, head: bytes) -> None:
        """Take the first bytes of a file, whenever it has grown."""
        of = self._files.get(name)
        if isinstance(of, ProfilerReading):
            of.refresh(head)
            return
        try:
            self._files[name] = ProfilerReading(name, head)
        except NotOurFileError as error:
            self._files[name] = error

    def take(self, name: str, pieces: Iterable[bytes]) -> None:
        """Take the next bytes of a file after its header."""
        of = self._files.get(name)
        for piece in pieces:
            if isinstance(of, ProfilerReading):
                of.take(piece)

    def lose(self, name: str, reason: str, at: int) -> None:
        """Note what could not be read of a file."""
        self._losses.append(f"{name}: {reason} (byte {at})")

    def rename(self, names: Mapping[str, str]) -> None:
        """Go on with files under the names that they have now."""
        self._files = renamed(self._files, names)
        for name, each in self._files.items():
            if isinstance(each, ProfilerReading):
                each.recorded.name = name

    def trace(self, names: list[str]) -> Trace:
        """Return the Trace of what has come so far; InputError where no file is the plug-in's."""
        losses: list[str] = [*self._losses]
        ledger: list[Row] = []
        read = []
        for name in names:
            of = self._files.get(name)
            if isinstance(of, ProfilerReading):
                read.append(of.so_far())
            elif of is not None:
                refuse(name, of, losses, ledger)
        whole = made(names, read, losses, ledger)
        self.reached = reached(whole)
        return whole
