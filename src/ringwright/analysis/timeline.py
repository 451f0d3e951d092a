"""Bytes over time, bursts, and which communicators are busy together; None where the source carries no times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from ringwright.trace import Trace

MAX_BINS = 240
MAX_BURSTS = 200
COARSE_TICK_S = 0.5
_HOUR_S = 3600.0
_STEPS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, _HOUR_S)


def timeline(trace: Trace) -> dict[str, Any] | None:
    """Return bytes per bin and operation, and bursts; bytes are per rank's request, once per record over its ranks."""
    import polars as pl

    events = trace.scan("events").filter(
        pl.col("kind").is_in(["collective", "p2p"]) & pl.col("enqueue_s").is_not_null()
    )
    share = pl.col("size_bytes").fill_null(0) / pl.col("nranks").fill_null(1).clip(1)
    frame = events.select("enqueue_s", "op", (share * pl.col("records")).alias("bytes"), "communicator").collect()
    if frame.height:
        return _from_events(frame)
    bins = trace.table("links").filter(pl.col("link") == "operation")
    return _from_bins(bins) if bins.height else None


def _bin_for(span: float) -> float:
    # Beyond the steps (a damaged year, or a log of months) whole hours, as many as keep the number of bins bounded.
    return next((step for step in _STEPS if span / step <= MAX_BINS), math.ceil(span / MAX_BINS / _HOUR_S) * _HOUR_S)


def _from_events(frame: pl.DataFrame) -> dict[str, Any]:
    times = frame["enqueue_s"]
    start, end = _float(times.min()), _float(times.max())
    width = _bin_for(end - start)
    return _series(frame.rename({"enqueue_s": "at"}), start, end, width) | {"bursts": _bursts(frame), "clock": "log"}


def _float(value: Any) -> float:
    return float(value or 0.0)


def _from_bins(bins: pl.DataFrame) -> dict[str, Any]:
    import polars as pl

    frame = bins.select(pl.col("bin_start_s").alias("at"), pl.col("src").alias("op"), "bytes")
    start, end = _float(frame["at"].min()), _float(frame["at"].max())
    width = max(_bin_for(end - start), 1.0)
    return _series(frame, start, end, width) | {"bursts": _bursts(frame.rename({"at": "enqueue_s"})), "clock": "log"}


def _series(frame: pl.DataFrame, start: float, end: float, width: float) -> dict[str, Any]:
    import polars as pl

    bins = int((end - start) // width) + 1
    placed = frame.with_columns(((pl.col("at") - start) // width).cast(pl.Int64).alias("bin"))
    grouped = placed.group_by("op", "bin").agg(pl.col("bytes").sum())
    series: dict[str, list[float]] = {}
    for op, place, amount in grouped.rows():
        series.setdefault(op, [0.0] * bins)[min(place, bins - 1)] += amount
    return {"bin_s": width, "start_s": start, "series": [{"op": op, "bytes": series[op]} for op in sorted(series)]}


def _bursts(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Requests closer than a gap belong to one burst; the gap is ten times the median, or a coarse clock's tick."""
    import polars as pl

    ordered = frame.select("enqueue_s", "bytes").sort("enqueue_s")
    gaps = ordered["enqueue_s"].diff().drop_nulls()
    positive = gaps.filter(gaps > 0)
    if not positive.len():
        return []
    tick = _float(positive.min())
    # Most requests at the very same instant: the clock is coarse, and one tick is all that can be told apart.
    gap = (
        0.5 * tick
        if _float(gaps.median()) == 0 and tick >= COARSE_TICK_S
        else max(10 * _float(gaps.median()), 1.5 * tick)
    )
    numbered = ordered.with_columns((pl.col("enqueue_s").diff().fill_null(0) > gap).cum_sum().alias("burst"))
    grouped = numbered.group_by("burst").agg(
        pl.col("enqueue_s").min().alias("start_s"),
        (pl.col("enqueue_s").max() - pl.col("enqueue_s").min()).alias("duration_s"),
        pl.col("bytes").sum(),
        pl.len().alias("count"),
    )
    return grouped.sort("bytes", descending=True).head(MAX_BURSTS).sort("start_s").drop("burst").to_dicts()


def concurrency(trace: Trace) -> list[dict[str, Any]]:
    """Return pairs of communicators of one rank that have requests in the same second, with how many such seconds."""
    import polars as pl

    events = trace.scan("events").filter(pl.col("enqueue_s").is_not_null() & pl.col("communicator").is_not_null())
    seen = events.select("rank", pl.col("enqueue_s").floor().alias("second"), "communicator").unique()
    pairs = seen.join(seen, on=["rank", "second"]).filter(pl.col("communicator") < pl.col("communicator_right"))
    grouped = pairs.group_by("communicator", "communicator_right").agg(
        pl.struct("rank", "second").n_unique().alias("n")
    )
    ordered = grouped.sort("n", "communicator", "communicator_right", descending=[True, False, False])
    found = ordered.head(100).collect().rows()
    return [{"communicator_a": a, "communicator_b": b, "overlaps": n} for a, b, n in found]
