"""Calls files while they grow: new lines are parsed as they come, and a look makes the Trace of all that have come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.formats.sources.calls.build import prepare
from ringwright.formats.sources.calls.file import CallsFile, take_lines
from ringwright.formats.sources.calls.reader import made
from ringwright.formats.sources.gate.rank_progress import Reached, reached, renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringwright.model.trace import Trace

_MOST_PARTS = 64  # frames of one file before they are put together


class GrowingCalls:
    """The calls files of one job so far."""

    head_bytes = 0

    def __init__(self) -> None:
        self._files: dict[str, CallsFile] = {}
        self.reached: list[Reached] = []

    def head(self, name: str, head: bytes) -> None:
        """Lines have no header that changes."""

    def take(self, name: str, pieces: Iterable[bytes]) -> None:
        """Take the next whole lines of a file."""
        calls_file = self._files.setdefault(name, CallsFile(name))
        for piece in pieces:
            take_lines(calls_file, piece)
        if len(calls_file.calls) > _MOST_PARTS:
            import polars as pl

            calls_file.calls = [pl.concat(calls_file.calls)]
            calls_file.ends = [pl.concat(calls_file.ends)] if calls_file.ends else []

    def lose(self, name: str, reason: str, at: int) -> None:
        """Note what could not be read of a file."""
        self._files.setdefault(name, CallsFile(name)).losses.append((reason, at))

    def rename(self, names: Mapping[str, str]) -> None:
        """Go on with files under the names that they have now."""
        self._files = {name: replace(each, name=name) for name, each in renamed(self._files, names).items()}

    def trace(self, names: list[str]) -> Trace:
        """Return the Trace of what has come so far; InputError where no line is of the format."""
        order = [name for name in names if name in self._files]
        whole = made(names, ((self._own(self._files[name]), None) for name in order))
        self.reached = reached(whole)
        return whole

    @staticmethod
    def _own(calls_file: CallsFile) -> CallsFile:
        """Return a prepared copy that may be used up."""
        own = replace(calls_file, calls=[*calls_file.calls], ends=[*calls_file.ends])
        prepare(own)
        return own
