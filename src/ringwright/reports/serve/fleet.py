"""The table of many jobs: what a server keeps of it, when it looks for new ones, and which recording a moment asks for."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ringwright.analysis.fleet_document import FleetRow
from ringwright.formats.sources.many_jobs import recorded_jobs
from ringwright.ground.errors import UsageError

TABLE = "table.json"
SCHEMA = "ringwright.fleet/1"
LOOK_S = 2.0  # at the folders, at most so often
REST = 4.0  # and at most a fifth of the time


class FleetTable(msgspec.Struct):
    """The table: how many jobs there are, what lies beside them and is none, and a row for each that was read."""

    schema: str = SCHEMA
    folders: list[str] = []
    jobs: int = 0
    beside: list[str] = []
    executor: str = ""
    rows: list[FleetRow] = []


def read_table(kept: Path) -> FleetTable:
    """Return the table as it was written last, empty before."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((kept / TABLE).read_bytes(), type=FleetTable)
    return FleetTable()


@dataclass
class ServedFleet:
    """The folders of many jobs that a server was given, and the folder where their table is kept.

    ``every``: each entry is a job. ``executor``: who reads them, as it is spelled, empty for the usual one. ``told`` is the last
    sign of life of their reading, ``seen`` changes with what the last look saw.
    """

    folders: list[Path]
    kept: Path
    every: bool
    executor: str
    told: str = ""
    following: bool = False
    seen: int | None = None
    _due_s: float = 0.0

    @property
    def file(self) -> Path:
        """The file of the table."""
        return self.kept / TABLE

    @property
    def command(self) -> list[str]:
        """The command that reads what is new and writes the table."""
        words = [str(self.kept), self.executor, "every" if self.every else "", *map(str, self.folders)]
        return ["ringwright.reports.serve.fleet_reading", *words]

    def holds(self, path: str) -> bool:
        """Whether a recording lies in one of the folders."""
        return any(Path(path).is_relative_to(folder) for folder in self.folders)

    def is_due(self) -> bool:
        """Whether it is time to look at the folders again."""
        return time.monotonic() >= self._due_s

    def is_changed(self) -> bool:
        """Look at the folders, and say whether a recording came, changed or went since the look before."""
        began_s, before = time.monotonic(), self.seen
        self.seen = hash(
            tuple(each[:3] for folder in self.folders for each in recorded_jobs(folder, every=self.every)[0])
        )
        self._due_s = time.monotonic() + max(LOOK_S, REST * (time.monotonic() - began_s))
        return self.seen != before

    def table(self, name: str = "", at: str = "") -> FleetTable:
        """Return the rows of all jobs, of one name, or of the recording that a moment asks for.

        That is the first of the name that ended at or after it, else the last. Raises UsageError for what is no moment.
        """
        table = read_table(self.kept)
        if name:
            table.rows = [row for row in table.rows if row.name == name]
        if at:
            moment_ms = moment(at)
            rows = sorted(table.rows, key=lambda row: row.at_ms)
            table.rows = ([row for row in rows if row.at_ms >= moment_ms] or rows[-1:])[:1]
        return table


def moment(text: str) -> int:
    """Return milliseconds since 1970 of those, of seconds, or of a time in ISO 8601; UsageError for anything else."""
    with suppress(ValueError, OverflowError):
        if text.isdecimal() and text.isascii() and len(text) < 17:
            return int(text) if len(text) > 11 else int(text) * 1000
        told = datetime.fromisoformat(text)
        return int((told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp() * 1000)
    raise UsageError(f"at={text[:40]} is no moment", remedy="milliseconds since 1970, or 2026-11-30T10:00:00Z")
