"""Who is late now: ranks that have made fewer calls than others of their communicator, and who the others waited for lately."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from ringwright.analysis.culprits import verdict
from ringwright.analysis.document import Culprit
from ringwright.analysis.logical_operations import folded
from ringwright.analysis.slow.arrivals import arrivals
from ringwright.analysis.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringwright.analysis.document import Summary
    from ringwright.formats.sources.gate.rank_progress import Reached
    from ringwright.model.trace import Trace

MOST_LATE = 50
MOST_JUDGED = 50_000  # rows; beyond them only the last minute's are judged
_Whose = tuple[int, int | None, int | None, str]  # communicator, rank in it, rank, process
SURE_LOOKS = 3  # looks in a row, from which on a rank is not only caught between two calls


class LateRank(TypedDict):
    """A rank behind the foremost of a communicator: by how many calls, and for how many looks in a row.

    ``still_looks`` of them it has not moved at all. ``rank`` is None where no line tells it; then ``comm_rank`` may, or
    ``process`` says its host and pid.
    """

    rank: int | None
    comm_rank: int | None
    host: str | None
    process: str
    communicator: int
    size: int  # ranks of the communicator that have been seen
    calls: int
    behind: int
    looks: int
    still_looks: int


def named(row: LateRank) -> str:
    """Return what a rank is called."""
    if row["rank"] is not None:
        return f"rank {row['rank']}"
    if row["comm_rank"] is not None:
        return f"rank {row['comm_rank']} of those"
    return f"process {row['process']}" if row["process"] else "a rank that no line names"


class LateRanks:
    """Remembers from look to look who was behind."""

    def __init__(self) -> None:
        self._before: dict[_Whose, LateRank] = {}
        self._calls: dict[_Whose, int] = {}  # of all ranks

    def look(self, reached: Iterable[Reached], hosts: Mapping[int, str | None]) -> list[LateRank]:
        """Return who is behind, those who have been for longest first."""
        of: dict[int, list[Reached]] = defaultdict(list)
        for each in reached:
            of[each.communicator].append(each)
        late: list[LateRank] = []
        for members in of.values():
            most = max(each.calls for each in members)
            late += [self._late(each, most, len(members), hosts) for each in members if each.calls < most]
        self._calls = {
            (each.communicator, each.comm_rank, each.rank, each.process): each.calls
            for members in of.values()
            for each in members
        }
        return self._kept(late)

    def still(self, late: Sequence[LateRank]) -> list[LateRank]:
        """Return who is behind at a look at which nothing was new."""
        return self._kept([{**row, "looks": row["looks"] + 1, "still_looks": row["still_looks"] + 1} for row in late])

    def _late(self, each: Reached, most: int, size: int, hosts: Mapping[int, str | None]) -> LateRank:
        key = (each.communicator, each.comm_rank, each.rank, each.process)
        before = self._before.get(key)
        still = 1 + (before["still_looks"] if before is not None else 0) if self._calls.get(key) == each.calls else 0
        return {
            "rank": each.rank,
            "comm_rank": each.comm_rank,
            "host": hosts.get(each.rank) if each.rank is not None else None,
            "process": each.process,
            "communicator": each.communicator,
            "size": size,
            "calls": each.calls,
            "behind": most - each.calls,
            "looks": 1 + (before["looks"] if before is not None else 0),
            "still_looks": still,
        }

    def _kept(self, late: list[LateRank]) -> list[LateRank]:
        self._before = {(row["communicator"], row["comm_rank"], row["rank"], row["process"]): row for row in late}
        return sorted(late, key=lambda row: (-row["still_looks"], -row["looks"], -row["behind"], row["communicator"]))[
            :MOST_LATE
        ]


def is_long(trace: Trace) -> bool:
    """Whether a recording holds so many rows that not all of them can be judged at every look."""
    import polars as pl

    return int(trace.scan("events").select(pl.len()).collect().item()) > MOST_JUDGED


def summary_and_recent(trace: Trace, window_s: float) -> tuple[Summary, Culprit | None]:
    """Return the summary, and who the others waited for in the last ``window_s``.

    Of a long recording the summary is that of its calls folded: the same operations and bytes, nothing of times.
    """
    return summarise(folded(trace) if is_long(trace) else trace), recent_culprit(trace, window_s)


def recent_culprit(trace: Trace, window_s: float) -> Culprit | None:
    """Return who the others waited for in the last ``window_s`` of a recording; None where calls have no times, or nobody.

    Of a window that holds more than ``MOST_JUDGED`` calls those that ended last.
    """
    import polars as pl

    end = pl.col("start_s") + pl.col("duration_s")
    timed = pl.col("kind").is_in(["collective", "p2p"]) & (pl.col("duration_s") > 0)
    newest = (
        trace.scan("events").filter(timed).select(end.top_k(MOST_JUDGED).alias("end")).collect()["end"].drop_nulls()
    )
    last, first = newest.max(), newest.min()
    if not isinstance(last, float) or not isinstance(first, float):
        return None
    recent = trace.scan("events").filter(~timed | (end >= max(first, last - window_s)))
    late = arrivals(replace(trace, tables={**trace.tables, "events": recent}))
    return verdict(sorted(late["culprits"], key=lambda one: -one["confidence"]))
