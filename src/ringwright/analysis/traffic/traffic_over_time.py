"""Bytes over time, bursts, and which communicators are busy together; None where the source carries no times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ringwright.analysis.document import Burst, LargestBurst, OperationSeries, Overlap, Timeline

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

MAX_BINS = 240
MAX_BURSTS = 200
COARSE_TICK_S = 0.5
EVERY_RANK = "all ranks"
_HOUR_S = 3600.0
_STEPS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, _HOUR_S)


def timeline(trace: Trace) -> Timeline | None:
    """Return bytes per bin and operation, and bursts; the size of a call counts once, not once per rank.

    ``largest_burst`` is that of one rank, the sizes of all it calls added, where calls name their rank; else that of all
    ranks together.
    """
    import polars as pl

    began = pl.coalesce("enqueue_s", "start_s").alias("enqueue_s")  # a source may know only when a call moved
    events = (
        trace.scan("events")
        .with_columns(began)
        .filter(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("enqueue_s").is_not_null() & moves())
    )
    names = ["enqueue_s", "op", "kind", "rank", "communicator", "sequence", "nranks", "size_bytes", "records"]
    frame = events.select(names).with_columns(pl.col("size_bytes", "records").fill_null(0)).collect()
    if frame.height:
        return _from_events(frame)
    bins = trace.table("links").filter((pl.col("link") == "operation") & (pl.col("bytes") > 0))
    return _from_bins(bins) if bins.height else None


def moves() -> pl.Expr:
    """What crosses a link: a group of one, and a message to oneself, do not."""
    import polars as pl

    return (pl.col("nranks").fill_null(2) > 1) & pl.col("peer").ne_missing(pl.col("comm_rank")).or_(
        pl.col("peer").is_null()
    )


def _once(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per call with its ``bytes``: of the ranks' records of a call the first, of a message the send."""
    import polars as pl

    has_sends = bool((frame["op"] == "send").any())
    calls = frame.filter(~((pl.col("op") == "recv") & has_sends)).sort("enqueue_s", maintain_order=True)
    joined = (pl.col("kind") == "collective") & pl.col("sequence").is_not_null() & pl.col("communicator").is_not_null()
    share = pl.when(pl.col("kind") == "collective").then(pl.col("nranks").fill_null(1).clip(1)).otherwise(1)
    alone = calls.filter(~joined).with_columns((pl.col("size_bytes") * pl.col("records") / share).alias("bytes"))
    met = calls.filter(joined).unique(["communicator", "sequence"], keep="first", maintain_order=True)
    return pl.concat([met.with_columns(pl.col("size_bytes").cast(pl.Float64).alias("bytes")), alone])


def _bin_for(span: float) -> float:
    # Beyond the steps (a damaged year, or a log of months) whole hours, as many as keep the number of bins bounded.
    return next((step for step in _STEPS if span / step <= MAX_BINS), math.ceil(span / MAX_BINS / _HOUR_S) * _HOUR_S)


def _from_events(frame: pl.DataFrame) -> Timeline:
    calls = _once(frame)
    start, end = _float(calls["enqueue_s"].min()), _float(calls["enqueue_s"].max())
    width, gap_s = _bin_for(end - start), _gap(frame)
    return {
        "bin_s": width,
        "start_s": start,
        "series": _series(calls.rename({"enqueue_s": "at"}), start, end, width),
        "bursts": _bursts(calls, gap_s),
        "largest_burst": _largest(frame, calls, gap_s),
        "clock": "log",
    }


def _float(value: Any) -> float:
    return float(value or 0.0)


def _from_bins(bins: pl.DataFrame) -> Timeline:
    import polars as pl

    frame = bins.select(pl.col("bin_start_s").alias("at"), pl.col("src").alias("op"), "bytes")
    start, end = _float(frame["at"].min()), _float(frame["at"].max())
    width = max(_bin_for(end - start), 1.0)
    calls = frame.rename({"at": "enqueue_s"})
    bursts = _bursts(calls, _gap(calls))
    largest = max(bursts, key=lambda burst: burst["bytes"])
    return {
        "bin_s": width,
        "start_s": start,
        "series": _series(frame, start, end, width),
        "bursts": bursts,
        "largest_burst": {"bytes": largest["bytes"], "start_s": largest["start_s"], "of": EVERY_RANK},
        "clock": "log",
    }


def _series(frame: pl.DataFrame, start: float, end: float, width: float) -> list[OperationSeries]:
    import polars as pl

    bins = int((end - start) // width) + 1
    placed = frame.with_columns(((pl.col("at") - start) // width).cast(pl.Int64).alias("bin"))
    grouped = placed.drop_nulls("bin").group_by("op", "bin").agg(pl.col("bytes").sum())
    series: dict[str, list[float]] = {}
    for op, column, amount in grouped.rows():
        series.setdefault(op, [0.0] * bins)[min(column, bins - 1)] += amount
    return [{"op": op, "bytes": series[op]} for op in sorted(series)]


def _gap(frame: pl.DataFrame) -> float:
    """Return the seconds beyond which a request begins a burst: ten times the median gap, or a coarse clock's tick."""
    gaps = frame["enqueue_s"].sort().diff().drop_nulls()
    positive = gaps.filter(gaps > 0)
    if not positive.len():
        return math.inf
    tick = _float(positive.min())
    # Most requests at the very same instant: the clock is coarse, and one tick is all that can be told apart.
    is_coarse = _float(gaps.median()) == 0 and tick >= COARSE_TICK_S
    return 0.5 * tick if is_coarse else max(10 * _float(gaps.median()), 1.5 * tick)


def _numbered(frame: pl.DataFrame, gap_s: float) -> pl.DataFrame:
    import polars as pl

    ordered = frame.sort("enqueue_s")
    return ordered.with_columns((pl.col("enqueue_s").diff().fill_null(0) > gap_s).cum_sum().alias("burst"))


def _bursts(calls: pl.DataFrame, gap_s: float) -> list[Burst]:
    """Return the bursts of all ranks together, in order of time, the largest where there are many."""
    import polars as pl

    grouped = (
        _numbered(calls.select("enqueue_s", "bytes"), gap_s)
        .group_by("burst")
        .agg(
            pl.col("enqueue_s").min().alias("start_s"),
            (pl.col("enqueue_s").max() - pl.col("enqueue_s").min()).alias("duration_s"),
            pl.col("bytes").sum(),
            pl.len().alias("count"),
        )
    )
    largest = grouped.sort("bytes", "start_s", descending=[True, False]).head(MAX_BURSTS)  # of equal ones the first
    rows = largest.sort("start_s").select("start_s", "duration_s", "bytes", "count").rows()
    return [
        {"start_s": start_s, "duration_s": duration_s, "bytes": amount, "count": count}
        for start_s, duration_s, amount, count in rows
    ]


def _largest(frame: pl.DataFrame, calls: pl.DataFrame, gap_s: float) -> LargestBurst:
    """Return the largest burst with ``of``: a rank where calls name theirs, else all ranks."""
    import polars as pl

    if frame["rank"].is_null().any():
        told = calls.select("enqueue_s", pl.lit(None, pl.Int32).alias("rank"), "bytes")
    else:
        told = frame.select(
            "enqueue_s", "rank", (pl.col("size_bytes") * pl.col("records")).cast(pl.Float64).alias("bytes")
        )
    grouped = (
        _numbered(told, gap_s)
        .group_by("burst", "rank")
        .agg(pl.col("enqueue_s").min().alias("start_s"), pl.col("bytes").sum())
    )
    row = grouped.sort("bytes", "start_s", "rank", descending=[True, False, False]).row(0, named=True)
    of = EVERY_RANK if row["rank"] is None else f"rank {row['rank']}"
    return {"bytes": row["bytes"], "start_s": row["start_s"], "of": of}


def concurrency(trace: Trace) -> list[Overlap]:
    """Return pairs of communicators of one rank that have requests in the same second, with how many such seconds."""
    import polars as pl

    events = trace.scan("events").filter(pl.col("enqueue_s").is_not_null() & pl.col("communicator").is_not_null())
    seen = events.select("rank", pl.col("enqueue_s").floor().alias("second"), "communicator").unique()
    pairs = seen.join(seen, on=["rank", "second"]).filter(pl.col("communicator") < pl.col("communicator_right"))
    grouped = pairs.group_by("communicator", "communicator_right").agg(
        pl.struct("rank", "second").n_unique().alias("n")
    )
    ordered = grouped.sort("n", "communicator", "communicator_right", descending=[True, False, False])
    rows = ordered.head(100).collect().rows()
    return [{"communicator_a": a, "communicator_b": b, "overlaps": n} for a, b, n in rows]
