"""What each rank does by itself in a step: the time in which its device works, and idle time that no call of its own explains.

Where work was recorded, that is told without a common clock and of a few steps: a rank begins to work when something that it
waited for has ended, so that what lies between the last end before and the begin is its own delay (its loader, its host). A rank
that waits for a late one has none of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringwright.analysis.intervals import length, union
from ringwright.analysis.slow.lateness import from_handing_in

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

Floats = npt.NDArray[np.float64]
MOST_EVENTS = 3_000_000
TOUCHING_S = 1e-9  # two times that are one: what rounding of seconds leaves


@dataclass(frozen=True)
class OwnWork:
    """Ranks x steps, in seconds: ``work`` of the device, ``delay`` before it. ``roles``: rows of ranks that do the same.

    ``by_op``: the seconds of a step by operation, for each rank.
    """

    ranks: list[int]
    steps: list[int]
    work: Floats
    delay: Floats
    step_s: float
    roles: list[list[int]]
    by_op: dict[str, Floats]


def own_work(trace: Trace) -> OwnWork | None:
    """Return what the ranks do by themselves; None where not every rank and step has work and calls with times."""
    import polars as pl

    is_timed = pl.col("start_s").is_finite() & (pl.col("duration_s") >= 0) & pl.col("rank").is_not_null()
    told = trace.scan("events").filter(is_timed & pl.col("iteration").is_not_null())
    names = ("rank", "iteration", "start_s", "duration_s")
    works = told.filter(pl.col("kind") == "compute").select(*names, "op", "rank_class").head(MOST_EVENTS).collect()
    called = told.filter(pl.col("kind").is_in(["collective", "p2p"]))
    calls = (
        from_handing_in(called).select(*names, "op", "size_bytes", "communicator", "peer").head(MOST_EVENTS).collect()
    )
    if works.is_empty() or calls.is_empty() or works["rank"].n_unique() < 2:
        return None
    ranks, steps = (sorted(works[name].unique().to_list()) for name in ("rank", "iteration"))
    if works.select("rank", "iteration").n_unique() < len(ranks) * len(steps):
        return None
    ends = pl.concat([frame.select("rank", _end()) for frame in (works, calls, _received(trace, calls))])
    work, delay = (np.zeros((len(ranks), len(steps))) for _ in range(2))
    for (rank, step), mine in works.group_by("rank", "iteration"):
        begins, lasted = mine["start_s"].to_numpy(), mine["duration_s"].to_numpy()
        work[ranks.index(rank), steps.index(step)] = length(union(begins, begins + lasted))
    for (rank,), mine in works.group_by("rank"):
        known = np.sort(ends.filter(pl.col("rank") == rank)["end_s"].to_numpy())
        late, at = _delays(mine.sort("start_s"), known)
        np.add.at(delay[ranks.index(rank)], [steps.index(each) for each in at], late)
    lasted_s = _step_s(works)
    return (
        OwnWork(ranks, steps, work, delay, lasted_s, _roles(works, calls, ranks), _by_op(works, ranks, len(steps)))
        if lasted_s > 0
        else None
    )


def _end() -> pl.Expr:
    import polars as pl

    return (pl.col("start_s") + pl.col("duration_s")).alias("end_s")


def _received(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the sends by who receives, where only the senders tell of them."""
    import polars as pl

    sends = calls.filter((pl.col("op") == "send-recv") & pl.col("peer").is_not_null())
    members = trace.table("communicators").select("communicator", "members")
    taken = pl.col("members").list.get(pl.col("peer"), null_on_oob=True).cast(pl.Int32).alias("rank")
    return sends.join(members, on="communicator").with_columns(taken).filter(pl.col("rank").is_not_null())


def _delays(works: pl.DataFrame, ends: Floats) -> tuple[Floats, list[int]]:
    """Return the seconds from the last end before each work to its begin, and its step; of what runs beside another none."""
    begins = works["start_s"].to_numpy()
    before = np.searchsorted(ends, begins + TOUCHING_S) - 1
    last = np.where(before >= 0, ends[np.maximum(before, 0)], begins)
    until = np.concatenate(([-np.inf], np.maximum.accumulate(begins + works["duration_s"].to_numpy())[:-1]))
    late = np.where(until > begins + TOUCHING_S, 0.0, begins - last)
    return np.maximum(late, 0.0), works["iteration"].to_list()


def _step_s(works: pl.DataFrame) -> float:
    """Return the usual seconds of a step: from its first work to the next step's; of one step, to its last end."""
    import polars as pl

    begun = works.group_by("rank", "iteration").agg(pl.col("start_s").min(), _end().max()).sort("rank", "iteration")
    apart = begun.select((pl.col("start_s").shift(-1) - pl.col("start_s")).over("rank").alias("lasted")).drop_nulls()
    lasted = apart["lasted"] if apart.height else begun["end_s"] - begun["start_s"]
    return float(lasted.median() or 0.0)  # type: ignore[arg-type]


def _by_op(works: pl.DataFrame, ranks: list[int], steps: int) -> dict[str, Floats]:
    import polars as pl

    gathered: dict[str, Floats] = {}
    for op, rank, seconds in works.group_by("op", "rank").agg(pl.col("duration_s").sum()).iter_rows():
        gathered.setdefault(op or "", np.zeros(len(ranks)))[ranks.index(rank)] = seconds / steps
    return gathered


def _roles(works: pl.DataFrame, calls: pl.DataFrame, ranks: list[int]) -> list[list[int]]:
    """Return the rows of ranks that can be compared: they are of one class and make the same calls."""
    import polars as pl

    named = dict(works.group_by("rank").agg(pl.col("rank_class").first()).iter_rows())
    counted = calls.group_by("rank", "op", "size_bytes").len().sort("op", "size_bytes", nulls_last=True)
    made: dict[int, list[tuple[object, ...]]] = {}
    for rank, *call in counted.iter_rows():
        made.setdefault(rank, []).append(tuple(call))
    roles: dict[tuple[object, ...], list[int]] = {}
    for row, rank in enumerate(ranks):
        roles.setdefault((named.get(rank), *made.get(rank, ())), []).append(row)
    return list(roles.values())
