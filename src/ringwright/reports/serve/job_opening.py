"""Reads a job in a process of its own: for its page, which lies in the job's folder from then on, or for its row among many."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ringwright.analysis.fleet_document import FleetRecord, FleetRow
from ringwright.ground import drafts
from ringwright.ground.errors import RingwrightError
from ringwright.ground.units import format_size

REPORT, SUMMARY, TRACE, LEVELS = "report.html", "summary.json", "trace", "timeline"
LONGEST = 200  # letters of what is told of an error
OFTEN_S = 0.5


def prepare(path: str, folder: Path) -> None:
    """Read a job and write its Trace, report, summary and timeline into a folder; RingwrightError where nothing can be read."""
    from ringwright.analysis.summary import summarise
    from ringwright.analysis.timeline.event_levels import levels
    from ringwright.formats.sources import read
    from ringwright.reports import html

    trace = read([path], progress=_counting())
    say("writing the trace")
    trace.save(folder / TRACE, force=True)
    say("summarising")
    view = summarise(trace)
    drafts.write(folder / REPORT, html.page(view))
    drafts.write(folder / SUMMARY, json.dumps(view, default=str))
    say("laying out the timeline")
    levels(trace).save(folder / LEVELS)


def recorded(path: str) -> FleetRecord:
    """Return what a recording says; one that cannot be read says why, whatever it was."""
    from ringwright.analysis.fleet_row import fleet_record
    from ringwright.analysis.summary import summarise
    from ringwright.formats.sources import read
    from ringwright.formats.sources.run_manifest import JOB_ENDED, JOB_NAME

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


class _counting:  # noqa: N801 - called like a function
    """Counts bytes that were read and says so now and then."""

    def __init__(self) -> None:
        self._done, self._last_s = 0, 0.0

    def __call__(self, size_bytes: int) -> None:
        self._done += size_bytes
        if time.monotonic() - self._last_s > OFTEN_S:
            self._last_s = time.monotonic()
            say(f"reading {format_size(self._done)}")


def say(text: str) -> None:
    """Say what is done, on stderr."""
    sys.stderr.write(f"ringwright: {text}\n")
    sys.stderr.flush()


def exit_code(work: Callable[[], object]) -> int:
    """Do the work of a process; return its exit code, with what went wrong said."""
    try:
        work()
    except RingwrightError as error:
        say(str(error))
        return error.exit_code
    return 0


def main(words: Sequence[str]) -> int:
    """Prepare the job of the command line: the folder to fill, then the recording; return the exit code."""
    folder, path = words
    return exit_code(lambda: prepare(path, Path(folder)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
