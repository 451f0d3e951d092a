"""Times for bursts: one clock where there is one or collectives tell the offsets, else each from its own first record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringwright.analysis.clocks import align

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

APART = "incast is not known: ranks have clocks of their own, and nothing tells how these differ"
MOST_S = 1e11  # three thousand years: beyond it a float knows no microseconds, and no recording began then
_WATCHED = ("collective", "p2p", "proxy", "compute", "memory", "step", "phase")


def is_time(name: str) -> pl.Expr:
    """Return whether a column holds a time: a number, and not further from its clock's origin than MOST_S."""
    import polars as pl

    return (pl.col(name).is_finite() & (pl.col(name).abs() <= MOST_S)).fill_null(value=False)


def lasts() -> pl.Expr:
    """Return whether an event has a beginning and an end."""
    import polars as pl

    return is_time("start_s") & is_time("duration_s") & (pl.col("duration_s") >= 0)


class Clocked(NamedTuple):
    """Events with times from 0 on, whether they are of one clock, what is to be said of it, and which time was recorded."""

    frame: pl.DataFrame
    is_one: bool
    said: str = ""
    window_s: tuple[float, float] | None = None


def on_one_clock(frame: pl.DataFrame, trace: Trace) -> Clocked:
    """Return events with ``enqueue_s`` and ``start_s`` from 0 on.

    Pauses and durations of a rank are its own clock's and stay as they are. The window is known where all records have one clock.
    """
    import polars as pl

    first = pl.min_horizontal("enqueue_s", "start_s").min()
    times = pl.col("enqueue_s", "start_s")
    if frame["clock"].n_unique() <= 1:
        origin_s = frame.select(first).item()
        return Clocked(frame.with_columns(times - origin_s), True, window_s=_window(frame, trace, origin_s))
    aligned = align(trace)
    if not aligned.refused and frame["rank"].is_in(list(aligned.clocks)).all():
        said = f"clocks of {len(aligned.clocks)} ranks were aligned to +- {aligned.uncertainty_s * 1e6:,.1f} us"
        moved = aligned.moved(frame)
        return Clocked(moved.with_columns(times - moved.select(first).item()), True, said)
    return Clocked(frame.with_columns(times - first.over("clock")), False, APART)


def _window(frame: pl.DataFrame, trace: Trace, origin_s: float) -> tuple[float, float] | None:
    import polars as pl

    # From the same shifted beginnings as the transfers', so that the last transfer ends within the window to the last bit.
    began = pl.col("start_s") - origin_s
    records = trace.scan("events").filter(pl.col("kind").is_in(_WATCHED) & lasts())
    spans = records.select("clock", began.alias("begin_s"), (began + pl.col("duration_s")).alias("end_s")).drop_nulls(
        "end_s"
    )
    ends = spans.select(pl.col("clock").n_unique(), pl.col("begin_s").min(), pl.col("end_s").max()).collect().row(0)
    is_same = ends[0] == 1 and spans.select(pl.col("clock").first()).collect().item() == frame["clock"][0]
    return (ends[1], ends[2]) if is_same else None
