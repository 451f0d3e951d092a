"""A job while it runs: its growing files read again and again, and what is new since the last time.

Reading anew is simple and cannot lose its place when a file is rotated; the pause grows with the time that reading takes, so that
a fifth of one core is the most it uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.analysis.document import Culprit, Row
from ringwright.analysis.summary import summarise
from ringwright.errors import InputError, UsageError
from ringwright.sources import read
from ringwright.units import format_count

if TYPE_CHECKING:
    from ringwright.trace import Trace

SCHEMA = "ringwright.live/1"
REST = 4.0  # pause at least this many times as long as reading took


@dataclass(frozen=True)
class Snapshot:
    """The job at one moment; ``operations`` have ``new`` and ``per_s`` since the snapshot before."""

    at_s: float
    trace: Trace | None
    operations: list[Row] = field(default_factory=list)
    verdict: Culprit | None = None
    coverage: str = ""
    waiting: str = ""

    def document(self) -> dict[str, Any]:
        """Return the object of schema ``ringwright.live/1``."""
        keep = ("operations", "verdict", "coverage", "waiting")
        return {"schema": SCHEMA, "at_s": round(self.at_s, 3)} | {name: getattr(self, name) for name in keep}


def follow(
    paths: Sequence[str],
    interval_s: float = 2.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Snapshot]:
    """Yield a snapshot now and whenever the files have grown; UsageError for an interval of 0 or less.

    Files that are not there yet are waited for.
    """
    if not interval_s > 0:
        raise UsageError(f"an interval of {interval_s} s is not above 0", remedy="give seconds above 0")
    before: dict[str, int] = {}
    seen, last_s = None, clock()
    while True:
        sizes = _sizes(paths)
        begin = clock()
        if sizes != seen:
            snapshot = _snapshot(paths, before, begin - last_s)
            before = {operation["op"]: operation["count"] for operation in snapshot.operations}
            seen, last_s = sizes, begin
            yield snapshot
        sleep(max(interval_s, REST * (clock() - begin)))


def _sizes(paths: Sequence[str]) -> dict[str, int]:
    """Return the size of every file below some paths."""
    sizes = {}
    for name in paths:
        path = Path(name)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                sizes[str(file)] = file.stat().st_size
    return sizes


def _snapshot(paths: Sequence[str], before: dict[str, int], passed_s: float) -> Snapshot:
    try:
        trace = read([*paths], events="folded")
    except InputError as error:
        return Snapshot(time.time(), None, waiting=f"waiting: {error.what}")
    summary = summarise(trace)
    operations = []
    for each in summary["operations"]:
        new = each["count"] - before.get(each["op"], 0)
        rate = new / passed_s if before and passed_s > 0 else None
        operations.append({"op": each["op"], "count": each["count"], "bytes": each["bytes"], "new": new, "per_s": rate})
    waiting = "" if operations else "no operation yet: ringwright doctor says what may be missing"
    return Snapshot(time.time(), trace, operations, summary["verdict"], summary["coverage"], waiting)


def headline(snapshot: Snapshot) -> str:
    """Return one line for a log or a status bar."""
    if snapshot.waiting:
        return snapshot.waiting
    calls = sum(operation["count"] for operation in snapshot.operations)
    verdict = f"; {snapshot.verdict['kind']}" if snapshot.verdict else ""
    return f"{format_count(calls)} calls{verdict}; {snapshot.coverage}"
