"""Reads the jobs of some folders, each once, in a process of its own: their table lies in the server's folder from then on.

    table.json            the rows, those that lose most first
    rows/NAME.msgpack     what one recording said; NAME is made of its files and of this release
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path

import msgspec

from ringwright.analysis.fleet_document import FleetChange, FleetRecord, FleetRow
from ringwright.analysis.fleet_row import fleet_change, fleet_record
from ringwright.executors.content import name_of
from ringwright.executors.fan_out import FanOut, fan_out
from ringwright.executors.inventory import inventory
from ringwright.formats.sources.many_jobs import RecordedJob, job_title, recorded_jobs
from ringwright.formats.sources.run_manifest import JOB_ENDED, JOB_NAME
from ringwright.ground import drafts
from ringwright.ground.errors import LostTaskError, RingwrightError
from ringwright.reports.serve.fleet import TABLE, FleetTable, TableRow, read_table

ROWS = "rows"
ENDED = ("wrong", "hang", "died")  # kinds of answers that lose more than time: these stand first
OFTEN_S = 2.0  # between two tables while jobs are read
LONGEST = 200  # letters of what is told of an error


def recorded(path: str) -> FleetRecord:
    """Return what a recording says; one that cannot be read says why, whatever it was."""
    from ringwright.analysis.summary import summarise
    from ringwright.formats.sources import read

    try:
        trace = read([path], executor="local:1")
        record = fleet_record(trace, summarise(trace))
        claims = {row["field"]: row["value"] for row in trace.table("claims").to_dicts()}
    except RingwrightError as error:
        return FleetRecord(FleetRow(error=error.what[:LONGEST]))
    except Exception as error:  # noqa: BLE001 - of a stranger's file, and there are others to be read
        return FleetRecord(FleetRow(error=f"our mistake: {type(error).__name__}: {error}"[:LONGEST]))
    ended = str(claims.get(JOB_ENDED) or "")
    record.job = str(claims.get(JOB_NAME) or "")
    record.ended_unix_s = int(ended) / 1e9 if ended.isdecimal() and len(ended) < 20 else None
    return record


class _Reading:
    """The jobs of some folders, and those whose recordings are known."""

    def __init__(self, kept: Path, folders: Sequence[Path], *, every: bool) -> None:
        self._kept, self._folders = kept, folders
        self._jobs: dict[str, RecordedJob] = {}
        self._beside: list[str] = []
        version = "".join(inventory().values())
        for folder in folders:
            jobs, beside = recorded_jobs(folder, every=every)
            self._jobs |= {name_of(recorded, (job.path, job.stamp), version): job for job in jobs}
            self._beside += beside
        self._compared = {(row.key, row.since): row.change for row in read_table(kept).rows}
        self._known: dict[str, FleetRecord] = {}
        (kept / ROWS).mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in (kept / ROWS).iterdir():
            if path.stem in self._jobs:
                with suppress(OSError, msgspec.DecodeError):
                    self._known[path.stem] = msgspec.msgpack.decode(path.read_bytes(), type=FleetRecord)
            else:
                path.unlink(missing_ok=True)

    def read(self, fan: FanOut) -> None:
        """Read what is not known, and write the table now and then."""
        keys, written_s = [key for key in self._jobs if key not in self._known], 0.0
        while keys:
            given = [(self._jobs[key].path,) for key in keys]
            try:
                for number, record in fan.stream(recorded, given, progress=self._say):
                    self._keep(keys[number], record)
                    if time.monotonic() - written_s > OFTEN_S:
                        self.write(fan, is_last=False)
                        written_s = time.monotonic()
            except LostTaskError as error:  # the others are read all the same
                self._keep(keys[error.number], FleetRecord(FleetRow(error=str(error)[:LONGEST])))
            keys = [key for key in keys if key not in self._known]
        self.write(fan, is_last=True)

    def _keep(self, key: str, record: FleetRecord) -> None:
        self._known[key] = record
        drafts.write(self._kept / ROWS / f"{key}.msgpack", msgspec.msgpack.encode(record))

    def _say(self, done: int, of: int, _name: str) -> None:
        sys.stderr.write(f"ringwright: {len(self._jobs) - of + done:,} of {len(self._jobs):,} jobs read\n")
        sys.stderr.flush()

    def write(self, fan: FanOut, *, is_last: bool) -> None:
        """Write the table; changes that are not known yet wait for the last time."""
        rows = sorted((self._row(key, record) for key, record in self._known.items()), key=_by_name)
        for _, named in groupby(rows, key=lambda row: row.name):
            for before, row in pairwise(named):
                row.since, before.is_last = before.key, False
                if (row.key, row.since) in self._compared or is_last:
                    row.change = self._change(row.key, row.since)
        rows.sort(key=_by_loss)
        table = FleetTable(
            folders=list(map(str, self._folders)),
            jobs=len(self._jobs),
            beside=self._beside,
            executor=fan.account.name,
            rows=rows,
        )
        drafts.write(self._kept / TABLE, msgspec.json.encode(table))

    def _row(self, key: str, record: FleetRecord) -> TableRow:
        job = self._jobs[key]
        at_s = job.changed_unix_s if record.ended_unix_s is None else record.ended_unix_s
        return TableRow(
            name=job_title(record.job, job.within),
            path=job.path,
            time=datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds"),
            at_ms=int(at_s * 1000),
            is_end_told=record.ended_unix_s is not None,
            key=key,
            **msgspec.structs.asdict(record.row),
        )

    def _change(self, key: str, since: str) -> FleetChange | None:
        if (key, since) not in self._compared:
            self._compared[key, since] = fleet_change(self._known[since], self._known[key])
        return self._compared[key, since]


def _by_loss(row: TableRow) -> tuple[bool, bool, float, bool, str, int]:
    unknown = row.lost_ranks is None
    return row.kind not in ENDED, unknown, -(row.lost_ranks or 0.0), bool(row.error), row.name, -row.at_ms


def _by_name(row: TableRow) -> tuple[str, int, str]:
    return row.name, row.at_ms, row.path


def main(words: Sequence[str]) -> int:
    """Read the jobs that the command line names: what is kept, the executor, ``every`` or nothing, the folders; return the exit code."""
    kept, executor, every, *folders = words
    try:
        with fan_out(executor or None) as fan:
            _Reading(Path(kept), list(map(Path, folders)), every=bool(every)).read(fan)
    except RingwrightError as error:
        sys.stderr.write(f"ringwright: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    from ringwright.reports.serve import fleet_reading  # by this name workers import it

    sys.exit(fleet_reading.main(sys.argv[1:]))
