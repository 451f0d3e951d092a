"""Reads a job once, in a process of its own: what the server shows of it lies in the job's folder from then on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ringwright.ground import drafts
from ringwright.ground.errors import RingwrightError
from ringwright.ground.units import format_size

REPORT, SUMMARY, TRACE, LEVELS = "report.html", "summary.json", "trace", "timeline"
OFTEN_S = 0.5


def prepare(path: str, folder: Path) -> None:
    """Read a job and write its Trace, report, summary and timeline into a folder; RingwrightError where nothing can be read."""
    from ringwright.analysis.summary import summarise
    from ringwright.analysis.timeline.event_levels import levels
    from ringwright.formats.sources import read
    from ringwright.reports import html

    trace = read([path], progress=_counting())
    _say("writing the trace")
    trace.save(folder / TRACE, force=True)
    _say("summarising")
    view = summarise(trace)
    drafts.write(folder / REPORT, html.page(view))
    drafts.write(folder / SUMMARY, json.dumps(view, default=str))
    _say("laying out the timeline")
    levels(trace).save(folder / LEVELS)


class _counting:  # noqa: N801 - called like a function
    """Counts bytes that were read and says so now and then."""

    def __init__(self) -> None:
        self._done, self._last_s = 0, 0.0

    def __call__(self, size_bytes: int) -> None:
        self._done += size_bytes
        if time.monotonic() - self._last_s > OFTEN_S:
            self._last_s = time.monotonic()
            _say(f"reading {format_size(self._done)}")


def _say(text: str) -> None:
    sys.stderr.write(f"ringwright: {text}\n")
    sys.stderr.flush()


def main(words: Sequence[str]) -> int:
    """Prepare the job of the command line: the folder to fill, then the recording; return the exit code."""
    folder, path = words
    try:
        prepare(path, Path(folder))
    except RingwrightError as error:
        _say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
