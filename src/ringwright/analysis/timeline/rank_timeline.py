"""One rank's kernels, calls and waits as arrays, and what the order of launches says. Times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.analysis.intervals import covered, union

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from ringwright.ground.trace_tables import Row

LOOKED_AT = 3000  # exposed operations per rank, the longest
MAIN = 0.2  # of the time of computation that makes a stream one that computes
AT_ONCE_US = 20.0
CHAIN_US = 100.0
TOLERANCE_US = 2.0  # older traces hold whole microseconds


@dataclass
class RankTimeline:
    """The arrays of one rank, in microseconds; compute kernels in order of start, calls that wait in order of start."""

    rank: int | None
    comm: pl.DataFrame
    exposed: np.ndarray
    compute: Row
    waits: Row
    main: set[str] = field(default_factory=set)  # streams that hold much of the computation
    keeps_order: bool = False
    talk: tuple[Any, Any] = ((), ())  # when communication went on, gaps up to CHAIN_US closed

    def reach(self, moment: float) -> float:
        """Return until when communication went on from a moment."""
        import numpy as np

        index = int(np.searchsorted(self.talk[0], moment, side="right")) - 1
        return max(moment, float(self.talk[1][index]) - CHAIN_US) if index >= 0 else moment


def arranged(rank: int | None, comm: pl.DataFrame, compute: pl.DataFrame, waits: pl.DataFrame) -> RankTimeline:
    """Return the timeline of a rank from its kernels that communicate, its kernels that compute, and its calls that wait."""
    import numpy as np

    comm, compute, waits = (frame.sort("start_s") for frame in (comm, compute, waits))
    starts = compute["start_s"].to_numpy() * 1e6
    spans = union(starts, starts + compute["duration_s"].to_numpy() * 1e6)
    begin = comm["start_s"].to_numpy() * 1e6
    lasted = comm["duration_s"].to_numpy() * 1e6
    began = waits["start_s"].to_numpy() * 1e6
    made = RankTimeline(
        rank,
        comm,
        lasted - covered(spans, begin, begin + lasted),
        {
            "start": starts,
            "enqueue": compute["enqueue_s"].fill_null(float("nan")).to_numpy() * 1e6,
            "stream": compute["stream"].to_list(),
            "line": compute["line"].to_list(),
        },
        {
            "start": began,
            "end": began + waits["duration_s"].to_numpy() * 1e6,
            "op": np.array(waits["op"].to_list(), object),
            "line": waits["line"].to_list(),
        },
        _main(compute),
    )
    made.waits["own"] = _own(made)
    made.talk = union(begin, begin + lasted + CHAIN_US)
    made.keeps_order = _keeps_order(made)
    return made


def _main(compute: pl.DataFrame) -> set[str]:
    """Return the streams that hold at least a fifth of the time of computation."""
    import polars as pl

    sums = compute.group_by("stream").agg(pl.col("duration_s").sum())
    least = MAIN * float(compute["duration_s"].sum() or 0.0)
    return set(sums.filter((pl.col("duration_s") >= least) & pl.col("stream").is_not_null())["stream"].to_list())


def _own(rank: RankTimeline) -> np.ndarray:
    """Return which stream waits are those of a communication call itself: the only one before it since the last launch."""
    import numpy as np

    called = (rank.comm["enqueue_s"].fill_null(float("nan")) * 1e6).to_numpy()
    launches = np.concatenate([called, rank.compute["enqueue"]])
    talks = np.arange(len(launches)) < len(called)
    order = np.argsort(launches, kind="stable")
    launches, talks = launches[order], talks[order]
    waits = (rank.waits["op"] == "stream-wait") if len(rank.waits["start"]) else np.zeros(0, bool)
    follows = np.asarray(np.searchsorted(launches, rank.waits["start"]))
    is_before_talk = waits & (follows < len(launches)) & np.append(talks, False)[np.minimum(follows, len(launches))]
    alone = np.bincount(follows[waits], minlength=len(launches) + 1)[follows] == 1
    own: np.ndarray = is_before_talk & alone
    return own


def _keeps_order(rank: RankTimeline) -> bool:
    """Whether kernels launched behind a waiting communication kernel never overtook it, though they often could have."""
    import numpy as np

    enqueue, start = rank.compute["enqueue"], rank.compute["start"]
    order = np.argsort(enqueue, kind="stable")
    enqueue, start = enqueue[order], start[order]
    chances = 0
    for called, began in rank.comm.select("enqueue_s", "start_s").head(LOOKED_AT).rows():
        if called is None or (began - called) * 1e6 < AT_ONCE_US:
            continue
        first, last = np.searchsorted(enqueue, [called * 1e6, began * 1e6 - AT_ONCE_US / 2])
        if last > first:
            if start[first : min(last, first + 32)].min() < began * 1e6 - TOLERANCE_US:
                return False
            chances += 1
    return chances >= 10
