"""Reads the jobs of some folders, each once, in a process of its own: their table lies in the server's folder from then on.

table.json            the rows, those that lose most first
rows/NAME.msgpack     what one recording said; NAME is made of its files and of this release
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path

import msgspec

from ringwright.analysis.fleet_document import FleetRecord, FleetRow
from ringwright.analysis.fleet_row import fleet_change
from ringwright.executors.content import name_of
from ringwright.executors.fan_out import FanOut, fan_out
from ringwright.executors.inventory import inventory
from ringwright.formats.sources.many_jobs import RecordedJob, job_title, recorded_jobs
from ringwright.ground import drafts
from ringwright.ground.errors import LostTaskError
from ringwright.reports.serve.fleet import TABLE, FleetTable, read_table
from ringwright.reports.serve.job_opening import LONGEST, exit_code, recorded, say

OFTEN_S = 2.0  # between two tables while jobs are read
ENDED = ("wrong", "hung", "failed")  # kinds of answers that lose more than time: these stand first


class _Reading:
    """The jobs of some folders, and what is known of their recordings, by the names of those."""

    def __init__(self, kept: Path, folders: Sequence[str], *, every: bool) -> None:
        self._kept, self._rows = kept, kept / "rows"
        self._jobs: dict[str, RecordedJob] = {}
        self._known: dict[str, FleetRecord] = {}
        self._table = FleetTable(folders=[*folders])
        self._compared = {(row.key, row.since): row.change for row in read_table(kept).rows}
        version = "".join(inventory().values())
        for folder in map(Path, folders):
            jobs, beside = recorded_jobs(folder, every=every)
            self._jobs |= {name_of(recorded, (job.path, job.stamp), version): job for job in jobs}
            self._table.beside += beside
        self._table.jobs = len(self._jobs)
        self._rows.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self._rows.iterdir():
            if path.stem not in self._jobs:
                path.unlink(missing_ok=True)
                continue
            with suppress(OSError, msgspec.DecodeError):
                self._known[path.stem] = msgspec.msgpack.decode(path.read_bytes(), type=FleetRecord)

    def read(self, fan: FanOut) -> None:
        """Read what is not known, and write the table now and then."""
        written_s = 0.0
        while keys := [key for key in self._jobs if key not in self._known]:
            try:
                for number, record in fan.stream(
                    recorded, [(self._jobs[key].path,) for key in keys], progress=self._say
                ):
                    self._keep(keys[number], record)
                    if time.monotonic() - written_s > OFTEN_S:
                        self._write(fan, is_last=False)
                        written_s = time.monotonic()
            except LostTaskError as error:  # whoever reads it ends; the others are read all the same
                self._keep(keys[error.number], FleetRecord(FleetRow(error=error.what[:LONGEST])))
        self._write(fan, is_last=True)

    def _keep(self, key: str, record: FleetRecord) -> None:
        self._known[key] = record
        drafts.write(self._rows / f"{key}.msgpack", msgspec.msgpack.encode(record))

    def _say(self, done: int, of: int, _name: str) -> None:
        say(f"{len(self._jobs) - of + done:,} of {len(self._jobs):,} jobs read")

    def _write(self, fan: FanOut, *, is_last: bool) -> None:
        """Write the table; changes that are not known yet wait for the last time."""
        rows = sorted(
            (self._row(*each) for each in self._known.items()), key=lambda row: (row.name, row.at_ms, row.path)
        )
        for _, named in groupby(rows, key=lambda row: row.name):
            self._compare(named, is_last=is_last)
        self._table.rows, self._table.executor = sorted(rows, key=_by_loss), fan.account.name
        drafts.write(self._kept / TABLE, msgspec.json.encode(self._table))

    def _row(self, key: str, record: FleetRecord) -> FleetRow:
        job, at_s = self._jobs[key], record.ended_unix_s
        is_told, at_s = at_s is not None, job.changed_unix_s if at_s is None else at_s
        when = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
        about = {"name": job_title(record.job, job.within), "path": job.path, "time": when, "at_ms": int(at_s * 1000)}
        return msgspec.structs.replace(record.row, key=key, is_end_told=is_told, **about)

    def _compare(self, named: Iterable[FleetRow], *, is_last: bool) -> None:
        for before, row in pairwise(named):
            row.since, before.is_last = before.key, False
            pair = row.key, row.since
            if is_last and pair not in self._compared:
                self._compared[pair] = fleet_change(self._known[row.since], self._known[row.key])
            row.change = self._compared.get(pair)


def _by_loss(row: FleetRow) -> tuple[bool, bool, float, bool, str, int]:
    unknown = row.lost_ranks is None
    return row.kind not in ENDED, unknown, -(row.lost_ranks or 0.0), bool(row.error), row.name, -row.at_ms


def main(words: Sequence[str]) -> int:
    """Read jobs, given what is kept, the executor, ``every`` or nothing, and the folders; return the exit code."""
    kept, executor, every, *folders = words

    def read() -> None:
        with fan_out(executor or None) as fan:
            _Reading(Path(kept), folders, every=bool(every)).read(fan)

    return exit_code(read)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
