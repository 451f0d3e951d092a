"""Data of a timeline of all ranks: the calls and kernels of one interval on one clock, at most a few thousand bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.analysis.clocks import align

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

MOST_BARS = 3000
MOST_RANKS = 32
_SHOWN = ("kind", "op", "kernel_class", "rank", "communicator", "sequence", "enqueue_s", "start_s", "duration_s")


def bars(trace: Trace) -> dict[str, Any] | None:
    """Return {start_us, end_us, clock, refused, ranks, shown, bars: [{rank, lane, start_us, duration_us, op, kind, wait_us}]}.

    The stretch is the middle one of the training steps where there are steps, else as much of the beginning as fits. None
    where nothing has a duration. ``refused`` says why ranks cannot share a picture; then no bar is given.
    """
    import polars as pl

    timed = _timed(trace)
    if not timed.height:
        return None
    clocks = align(trace)
    result: dict[str, Any] = {"clock": "", "refused": clocks.refused, "ranks": timed["rank"].n_unique(), "bars": []}
    if clocks.refused:
        return result
    moved = clocks.moved(timed)
    if clocks.uncertainty_s:
        result["clock"] = f"ranks within {clocks.uncertainty_s * 1e6:,.1f} us of each other"
    start, end = _stretch(moved, trace if len(clocks.clocks) < 2 else None)
    inside = moved.filter((pl.col("start_s") < end) & (pl.col("start_s") + pl.col("duration_s") > start))
    ranks = sorted(inside["rank"].unique().to_list())[:MOST_RANKS]
    chosen = inside.filter(pl.col("rank").is_in(ranks)).sort("start_s").head(MOST_BARS)
    end = min(end, float((chosen["start_s"] + chosen["duration_s"]).max() or end))  # type: ignore[arg-type]
    rows = [
        {
            "rank": row["rank"],
            "lane": "calls" if row["kind"] in ("collective", "p2p") else "compute",
            "start_us": round((row["start_s"] - start) * 1e6, 3),
            "duration_us": round(row["duration_s"] * 1e6, 3),
            "op": row["op"] or row["kernel_class"] or row["kind"],
            "kind": row["kind"],
            "wait_us": None if row["wait_s"] is None else round(row["wait_s"] * 1e6, 3),
        }
        for row in chosen.iter_rows(named=True)
    ]
    return result | {
        "start_us": 0.0,
        "end_us": round((end - start) * 1e6, 3),
        "shown": len(rows),
        "bars": rows,
        "of": inside.height,
    }


def _timed(trace: Trace) -> pl.DataFrame:
    import polars as pl

    shown = pl.col("kind").is_in(["collective", "p2p", "compute"])
    known = pl.all_horizontal(pl.col("rank", "start_s", "duration_s").is_not_null())
    events = trace.scan("events").filter(shown & known).select(*_SHOWN).collect()
    least = pl.col("duration_s").min().over("communicator", "sequence", "op")
    several = pl.len().over("communicator", "sequence", "op") > 1
    wait = pl.when((pl.col("kind") == "collective") & pl.col("sequence").is_not_null() & several)
    return events.with_columns(wait.then(pl.col("duration_s") - least).alias("wait_s"))


def _stretch(events: pl.DataFrame, trace: Trace | None) -> tuple[float, float]:
    """Return the beginning and end of what is shown."""
    import polars as pl

    calls = events.filter(pl.col("kind") != "compute")
    base = calls if calls.height else events
    first, last = float(base["start_s"].min()), float((base["start_s"] + base["duration_s"]).max())  # type: ignore[arg-type]
    steps = (
        None
        if trace is None
        else trace.scan("events").filter(pl.col("kind") == "step").drop_nulls(["start_s", "duration_s"]).collect()
    )
    if steps is not None and steps.height:
        middle = steps.sort("start_s").row(steps.height // 2, named=True)
        return float(middle["start_s"]), float(middle["start_s"] + middle["duration_s"])
    if events.height <= MOST_BARS:
        return first, last
    at = events.sort("start_s")["start_s"]
    return first, max(float(at[min(MOST_BARS, len(at) - 1)]), first)
