"""How late each rank is in each step, in shares of a step, without a common clock.

A rank's own time runs from the end of one step's calls to the end of the next step's, by its own clock, less the time in
which calls block it. Its lateness is what its own time is more than that of the median rank of those it works with. A rank that
is late only because a rank of a smaller group held it up there is not blamed. Where the work of all ranks was recorded, a call
blocks while no work runs. Else calls tell: where the next one is issued a steady time after a call's issue, and not after its
end, the rank went on at once and waits later; so it does where the next one is issued before the end. The last call of such a
chain blocks until all of them have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringwright.analysis.intervals import covered, union
from ringwright.model.run_tables import HANDED_IN

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

FEWEST_STEPS = 12
STEADIER = 0.7  # times what the gap from a call's end varies by
_MOST_CALLS_AS_STEPS = 5_000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lateness:
    """``late``: ranks x steps, shares of a usual step of ``step_us``. ``labels``: what the steps are called by; ``unit`` step, or
    call where no steps are told. ``first``: ranks x steps, the part that passed before the step's first call."""

    ranks: list[int]
    labels: list[int]
    late: Floats
    first: Floats
    step_us: float
    unit: str


def lateness(trace: Trace, judged: pl.DataFrame) -> Lateness | None:
    """Return the lateness of ranks, from matched calls with their ``wait`` (us); None with too few steps or only one rank."""
    import polars as pl

    frame, unit = _steps(judged)
    if frame is None:
        return None
    calls = _calls(trace, frame, unit)
    turns = _own(calls, _works(trace, calls, unit))
    wide = turns.pivot(on="rank", index="step", values="own").sort("step")
    first = turns.pivot(on="rank", index="step", values="at_first").sort("step").select(wide.columns)
    whole = pl.all_horizontal(pl.exclude("step").is_not_null())
    wide, first = wide.filter(whole), first.filter(whole)
    if wide.height < FEWEST_STEPS or wide.width < 3:
        return None
    wide, first = wide.slice(1), first.slice(1)  # the first step loads, connects and compiles
    ranks = sorted(int(name) for name in wide.columns if name != "step")
    columns = [str(rank) for rank in ranks]
    parts = _parts(frame, ranks)
    late = _behind(wide.select(columns).to_numpy().T, parts)
    usual = _usual(trace, frame, wide["step"].to_list(), late.max(axis=0), unit)
    of_first = _behind(first.select(columns).to_numpy().T, parts)
    return Lateness(ranks, wide["step"].to_list(), late / usual, of_first / usual, usual, unit) if usual > 0 else None


def from_handing_in(calls: pl.LazyFrame) -> pl.LazyFrame:
    """Return calls from when their rank handed them in, where they begin only when all ranks are there.

    So do live schedules and simulated jobs: nobody waits within such a call, but before it.
    """
    import polars as pl

    early = pl.col("source").is_in(HANDED_IN) & (pl.col("enqueue_s") < pl.col("start_s"))
    waited = pl.when(early).then(pl.col("start_s") - pl.col("enqueue_s")).otherwise(0.0)
    return calls.with_columns(pl.col("start_s") - waited, pl.col("duration_s") + waited)


def _steps(judged: pl.DataFrame) -> tuple[pl.DataFrame | None, str]:
    """Return the calls with their ``step``: the iteration, else the place in the one group that has them all."""
    import polars as pl

    told = judged.filter(pl.col("iteration").is_not_null())
    if told["iteration"].n_unique() >= FEWEST_STEPS:
        return told.with_columns(pl.col("iteration").alias("step")), "step"
    if judged.is_empty():
        return None, ""
    largest = judged.group_by("communicator").len().sort("len", "communicator", descending=[True, False])
    mine = judged.filter(pl.col("communicator") == largest["communicator"][0])
    if mine.height * 10 < judged.height * 9 or not FEWEST_STEPS <= mine["sequence"].n_unique() <= _MOST_CALLS_AS_STEPS:
        return None, ""
    return mine.with_columns(pl.col("sequence").alias("step")), "call"


def _calls(trace: Trace, frame: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Return all timed calls of the ranks and steps: also a broadcast or a receive blocks."""
    import polars as pl

    if unit != "step" or frame["start_s"].null_count():
        return frame.select("rank", "step", "sequence", "start_s", "us")
    calls = trace.scan("events").filter(
        pl.col("kind").is_in(["collective", "p2p"])
        & pl.col("start_s").is_not_null()
        & (pl.col("duration_s") > 0)
        & pl.col("rank").is_in(frame["rank"].unique().to_list())
        & pl.col("iteration").is_not_null()
    )
    wanted = (
        "rank",
        pl.col("iteration").alias("step"),
        "sequence",
        "start_s",
        (pl.col("duration_s") * 1e6).alias("us"),
    )
    return from_handing_in(calls).select(*wanted).collect()


def _works(trace: Trace, calls: pl.DataFrame, unit: str) -> pl.DataFrame | None:
    """Return when the ranks worked (us), None where the steps of some rank have no work that was recorded."""
    import polars as pl

    if unit != "step" or calls["start_s"].null_count():
        return None
    turns = calls.select("rank", "step").unique()
    begins = pl.col("start_s") * 1e6
    works = (
        trace.scan("events")
        .filter((pl.col("kind") == "compute") & begins.is_finite() & (pl.col("duration_s") > 0))
        .select("rank", pl.col("iteration").alias("step"), begins.alias("begins"), pl.col("duration_s") * 1e6)
        .with_columns((pl.col("begins") + pl.col("duration_s")).alias("ended"))
        .collect()
    )
    without = turns.join(works.select("rank", "step").unique(), on=["rank", "step"], how="anti")
    return None if len(without) else works


def _own(calls: pl.DataFrame, works: pl.DataFrame | None) -> pl.DataFrame:
    """Return per rank and step its own microseconds (without begins: what is less in calls), and those before the first call."""
    import polars as pl

    if calls["start_s"].null_count():
        least = calls.group_by("rank", "step").agg((-pl.col("us").sum()).alias("own"))
        return least.with_columns(pl.lit(0.0).alias("at_first"))
    begins = pl.col("start_s") * 1e6
    ended = (begins + pl.col("us")).cum_max().over("rank")
    timed = calls.sort("rank", "start_s", "sequence").with_columns(begins.alias("begins"), ended.alias("ended"))
    blocked = pl.when(_goes_on(timed)).then(0.0).otherwise(pl.col("ended") - pl.col("begins"))
    timed = timed.with_columns(blocked.alias("blocked"))
    turns = timed.group_by("rank", "step", maintain_order=True).agg(
        pl.col("begins").first(), pl.col("ended").max(), pl.col("blocked").sum()
    )
    before = pl.col("ended").shift(1).over("rank")
    turns = turns.with_columns(before.alias("before")).filter(pl.col("before").is_not_null())
    if works is not None:
        turns = pl.concat([_without_work(rows, timed, works) for rows in turns.partition_by("rank")])
    own = (pl.col("ended") - pl.col("before") - pl.col("blocked")).alias("own")
    return turns.with_columns(own, (pl.col("begins") - pl.col("before")).alias("at_first"))


def _goes_on(timed: pl.DataFrame) -> pl.Series:
    """Return which calls a rank does not wait for: the next is issued before their end, or a steady time after their issue.

    The program is one: calls of equal number in the steps of ranks with as many calls are looked at together.
    """
    import polars as pl

    following = pl.col("begins").shift(-1).over("rank", "step")
    told = timed.select(
        pl.col("rank"),
        pl.int_range(pl.len()).over("rank", "step").alias("number"),
        pl.len().over("rank", "step").alias("calls"),
        (following - pl.col("begins")).alias("from_issue"),
        (following - pl.col("ended")).alias("from_end"),
    )
    alike = ["number", "calls"]
    for gap in ("from_issue", "from_end"):
        apart = pl.col(gap) - pl.col(gap).median().over("rank", *alike)
        told = told.with_columns(apart.abs().median().over(alike).alias(f"varies_{gap}"))
    at_once = told["varies_from_issue"] < STEADIER * told["varies_from_end"]
    is_issued = timed.select((pl.col("begins").shift(-1).over("rank") < pl.col("ended")).alias("goes_on"))["goes_on"]
    return (at_once | is_issued).fill_null(value=False)


def _without_work(turns: pl.DataFrame, calls: pl.DataFrame, works: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of one rank, blocked for as long as a call was under way and no work ran."""
    import polars as pl

    is_mine = pl.col("rank") == turns["rank"][0]
    called, worked = (frame.filter(is_mine).select("begins", "ended").to_numpy() for frame in (calls, works))
    either = union(*np.concatenate((called, worked)).T)
    window = turns["before"].to_numpy(), turns["ended"].to_numpy()
    blocked = covered(either, *window) - covered(union(*worked.T), *window)
    return turns.with_columns(pl.Series("blocked", blocked))


def _parts(frame: pl.DataFrame, ranks: list[int]) -> list[list[int]]:
    """Return the rows of ranks that can be compared: they share groups, directly or through others, and make the same calls."""
    import polars as pl
    import rustworkx

    row_of = {rank: row for row, rank in enumerate(ranks)}
    graph = rustworkx.PyGraph()
    graph.add_nodes_from(ranks)
    for members in frame.group_by("communicator").agg(pl.col("rank").unique().sort())["rank"].to_list():
        graph.add_edges_from_no_data([(row_of[members[0]], row_of[other]) for other in members[1:]])
    part_of = {row: number for number, part in enumerate(rustworkx.connected_components(graph)) for row in part}
    counts = frame.group_by("rank").agg(pl.len(), pl.col("size_bytes").sum())
    parts: dict[tuple[int, ...], list[int]] = {}
    for rank, calls, size in sorted(counts.rows()):
        parts.setdefault((part_of[row_of[rank]], calls, size), []).append(row_of[rank])
    return list(parts.values())


def _behind(own: Floats, parts: list[list[int]]) -> Floats:
    """Return by how much each row is above the median row of its part; of two, above the other."""
    late = np.zeros_like(own)
    for rows in parts:
        if len(rows) > 1:
            late[rows] = own[rows] - (np.median(own[rows], axis=0) if len(rows) > 2 else own[rows].min(axis=0))
    return late


def _usual(trace: Trace, frame: pl.DataFrame, steps: list[int], worst: Floats, unit: str) -> float:
    """Return the microseconds of a step that nobody holds up: told steps, else from first call to first call."""
    import polars as pl

    told: dict[int, float] = {}
    if unit == "step":
        mine = trace.scan("events").filter((pl.col("kind") == "step") & (pl.col("duration_s") > 0))
        told = dict(mine.group_by("iteration").agg(pl.col("duration_s").median() * 1e6).collect().rows())
    if not told:
        told = _between(frame)
    known = [told[step] - late for step, late in zip(steps, worst, strict=True) if told.get(step)]
    return float(np.median(known)) if known else 0.0


def _between(frame: pl.DataFrame) -> dict[int, float]:
    import polars as pl

    if frame["start_s"].null_count():
        spent = frame.group_by("step", "rank").agg(pl.col("us").sum())
        return dict(spent.group_by("step").agg(pl.col("us").median()).rows())
    begins = frame.group_by("rank", "step").agg(pl.col("start_s").min()).sort("rank", "step")
    lasted = begins.with_columns(((pl.col("start_s").shift(-1) - pl.col("start_s")).over("rank") * 1e6).alias("us"))
    medians: dict[int, Any] = dict(lasted.drop_nulls().group_by("step").agg(pl.col("us").median()).rows())
    return medians
