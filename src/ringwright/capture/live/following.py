"""A job while it runs: its growing files looked at again and again, and what is new since the last look.

:class:`Follower` looks when it is asked and never sleeps: a terminal, a local web server or a test decides when. :func:`follow`
adds the pauses of a terminal. A look reads what has been added to files that can be continued (``sources.growing``) and makes
the whole answer anew from what has been read so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.analysis.document import Culprit
from ringwright.capture.live.live_alerts import AlertWatch, FiredAlert, read_rules
from ringwright.capture.live.live_late import LateRank, LateRanks, is_long, summary_and_recent
from ringwright.capture.live.live_rates import LiveNic, LiveOperation, LiveRates, LiveSize
from ringwright.formats.sources.fusion import fuse
from ringwright.formats.sources.growing import MOST_LOOK_BYTES, GrowingJob, Looked
from ringwright.ground.errors import InputError, UsageError
from ringwright.ground.units import format_count
from ringwright.model.trace import Trace, is_capture

if TYPE_CHECKING:
    from ringwright.analysis.document import Summary

SCHEMA = "ringwright.live/1"
REST = 4.0  # a pause is at least this many times as long as a look computed
WINDOW_S = 60.0  # of the recording's own time, for who is late now
_MOST_EVENTS = 20
_KEYS = (
    *("operations", "verdict", "coverage", "waiting", "sizes", "nics", "late", "recent", "errors", "quiet_s", "files"),
    *("read_bytes", "left_bytes", "look_s", "events", "alerts"),
)


@dataclass(frozen=True)
class Snapshot:
    """The job at one moment, as far as its files tell.

    ``operations`` count from the beginning; ``new``, ``per_s`` and ``gbs`` are since the look before, None at the first.
    ``verdict`` is of the whole recording (beyond 50,000 calls one by one, of what has no times: errors; else ``recent``),
    ``recent`` of its last minute, ``late`` of this look. Rates are of what the files say,
    which may come later than it happened.
    """

    at_s: float  # since 1970
    trace: Trace | None
    operations: list[LiveOperation] = field(default_factory=list)
    verdict: Culprit | None = None
    coverage: str = ""
    waiting: str = ""  # why there is nothing yet
    sizes: list[LiveSize] = field(default_factory=list)  # by class of sizes, those with new calls
    nics: list[LiveNic] = field(default_factory=list)
    late: list[LateRank] = field(default_factory=list)
    recent: Culprit | None = None
    errors: int = 0  # in the recording
    quiet_s: float = 0.0  # since a file has grown
    files: int = 0
    read_bytes: int = 0  # by this look
    left_bytes: int = 0  # that wait for the next one
    look_s: float = 0.0  # what this look took
    events: list[str] = field(default_factory=list)  # what happened to files since the look before
    alerts: list[FiredAlert] = field(default_factory=list)  # rules that hold now

    def document(self) -> dict[str, Any]:
        """Return the object of schema ``ringwright.live/1``."""
        return {"schema": SCHEMA, "at_s": round(self.at_s, 3)} | {name: getattr(self, name) for name in _KEYS}


class Follower:
    """A running job's files, looked at whenever :meth:`look` is called.

    Parameters
    ----------
    paths
        Logs, folders or captures that grow; what is not there yet is waited for.
    watch
        Rules that raise alerts (:func:`ringwright.capture.live.live_alerts.read_rules`).
    window_s
        The part of the recording, from its end, that says who is late now, s.
    most_bytes
        What one look reads at most; a long log is caught up with over several looks.
    clock
        Seconds that only grow; a test gives its own.

    Examples
    --------
    >>> import ringwright
    >>> from ringwright.capture.live.following import Follower
    >>> snapshot = Follower([ringwright.sample()]).look()
    >>> [row["op"] for row in snapshot.operations], snapshot.left_bytes
    (['all-reduce'], 0)
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        watch: AlertWatch | None = None,
        window_s: float = WINDOW_S,
        most_bytes: int = MOST_LOOK_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._captures = [path for path in paths if is_capture(Path(path))]
        others = [path for path in paths if path not in self._captures]
        self._job = GrowingJob(others, most_bytes) if others or not self._captures else None
        self._opened: list[Trace] = []
        self._watch, self._window_s, self._clock = watch, window_s, clock
        self._rates, self._late = LiveRates(), LateRanks()
        self._grown_s = clock()
        self._last: Snapshot | None = None

    def look(self, *, is_end: bool = False) -> Snapshot:
        """Read what is new and say how the job stands; never sleeps, and raises nothing for files that are not there yet.

        ``is_end``: nothing more comes, so a last line that has not ended counts as it stands.
        """
        begin = self._clock()
        try:
            looked = self._look(begin, is_end=is_end)
        except InputError as error:
            looked = Snapshot(time.time(), None, waiting=f"waiting: {error.what}")
        looked = replace(looked, quiet_s=begin - self._grown_s, look_s=self._clock() - begin)
        if self._watch is not None:
            looked = replace(looked, alerts=self._watch.look(looked))
        return looked

    def _look(self, begin: float, *, is_end: bool) -> Snapshot:
        parts = [*self._captured()]
        if self._job is None:
            return self._unchanged(begin, []) if self._last is not None else self._made(parts, begin, Looked(None))
        looked = self._job.look(is_end=is_end)
        if looked.parts is None and self._last is not None:
            return self._unchanged(begin, looked.events)
        return self._made([*parts, *(looked.parts or [])], begin, looked)

    def _captured(self) -> list[Trace]:
        if not self._opened:
            self._opened = [Trace.open(path) for path in self._captures]
        return self._opened

    def _made(self, parts: list[Trace], begin: float, looked: Looked) -> Snapshot:
        """Return what has been read, with its rates."""
        trace = parts[0] if len(parts) == 1 else fuse(parts)
        summary, recent = summary_and_recent(trace, self._window_s)
        self._grown_s = begin
        # What a look before left unread came at the speed of reading, not of the job.
        is_caught_up = self._last is None or not self._last.left_bytes
        operations, sizes, nics = self._rates.look(summary, begin, is_caught_up=is_caught_up)
        waiting = "" if operations else "no operation yet: ringwright doctor says what may be missing"
        self._last = Snapshot(
            time.time(),
            trace,
            operations,
            summary["verdict"] or (recent if is_long(trace) else None),
            summary["coverage"],
            waiting,
            sizes=sizes,
            nics=nics,
            late=self._late_ranks(summary),
            recent=recent,
            errors=summary["errors_total"],
            files=len(self._job.files) if self._job is not None else len(self._captures),
            read_bytes=looked.read_bytes,
            left_bytes=looked.left_bytes,
            events=looked.events[:_MOST_EVENTS],
        )
        return self._last

    def _late_ranks(self, summary: Summary) -> list[LateRank]:
        hosts = {row["rank"]: row["host"] for row in summary["ranks"] if row["rank"] is not None}
        return self._late.look(self._job.reached if self._job is not None else [], hosts)

    def _unchanged(self, begin: float, events: list[str]) -> Snapshot:
        """Return the last snapshot of files that have not grown: nothing is new, and nobody has moved."""
        last = self._last or Snapshot(time.time(), None)
        self._last = replace(
            last,
            at_s=time.time(),
            operations=self._rates.still(last.operations, begin),
            sizes=[],
            nics=[{**nic, "sent_gbs": 0.0, "received_gbs": 0.0} for nic in last.nics],
            late=self._late.still(last.late),
            read_bytes=0,
            events=events[:_MOST_EVENTS],
        )
        return self._last


def follow(
    paths: Sequence[str],
    interval_s: float = 2.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    watch: AlertWatch | None = None,
    is_steady: bool = False,
) -> Iterator[Snapshot]:
    """Yield a snapshot now and whenever the files have grown; UsageError for an interval of 0 or less.

    Files that are not there yet are waited for. ``is_steady``: a snapshot also comes where nothing has grown. ``watch`` as in
    :class:`Follower`.
    """
    if not interval_s > 0:
        raise UsageError(f"an interval of {interval_s} s is not above 0", remedy="give seconds above 0")
    follower = Follower(paths, watch=watch, clock=clock)
    before: tuple[bool, str] | None = None
    while True:
        begin, cpu_s = clock(), time.process_time()
        snapshot = follower.look()
        state = (snapshot.trace is not None, snapshot.waiting)
        if is_steady or snapshot.alerts or snapshot.read_bytes or snapshot.events or state != before:
            yield snapshot
        before = state
        # What is left of a long log is read at once: until then nothing that is shown is of now.
        if not snapshot.left_bytes:
            sleep(pause_s(interval_s, clock() - begin, time.process_time() - cpu_s))


def pause_s(interval_s: float, look_s: float, cpu_s: float) -> float:
    """Return the pause after a look: the interval, or longer, so that looks use a fifth of one core at most.

    A look that took long because others had the core is no reason to wait longer.
    """
    return max(interval_s, REST * min(look_s, cpu_s))


def watched(
    paths: Sequence[str], interval_s: float, rules: Path | None, *, is_once: bool = False, is_steady: bool = False
) -> Iterator[Snapshot]:
    """Yield the snapshots of a running job, with the alerts of a file of rules; with ``is_once`` one of all there is.

    Raises as ``follow`` and ``read_rules`` do. With rules, as with ``is_steady``, a snapshot comes at every look: a job that
    stands still is seen by what does not come.
    """
    watch = AlertWatch(read_rules(rules)) if rules is not None else None
    if is_once:
        return once(paths, watch)
    return follow(paths, interval_s, watch=watch, is_steady=is_steady or watch is not None)


def once(paths: Sequence[str], watch: AlertWatch | None = None) -> Iterator[Snapshot]:
    """Yield one snapshot of all that the files hold, as if nothing more came."""
    follower = Follower(paths, watch=watch)
    while (snapshot := follower.look(is_end=True)).left_bytes:
        pass
    yield snapshot


def headline(snapshot: Snapshot) -> str:
    """Return one line for a log or a status bar."""
    if snapshot.waiting:
        return "; ".join(part for part in (snapshot.waiting, snapshot.coverage) if part)
    calls = sum(operation["count"] for operation in snapshot.operations)
    verdict = f"; {snapshot.verdict['kind']}" if snapshot.verdict else ""
    left = f"; {snapshot.left_bytes / 1e6:,.0f} MB still to read" if snapshot.left_bytes else ""
    return f"{format_count(calls)} calls{verdict}{left}; {snapshot.coverage}"
