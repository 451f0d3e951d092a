"""How long each step took on each rank, as the source marked steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.model.trace import Trace


def steps_us(trace: Trace) -> dict[int, list[float]]:
    """Return rank -> microseconds of its steps, in order of time; empty when the source marks none.

    Steps are host time. After a barrier-like step they are equal on all ranks, also when one of them is slow: see
    ``arrivals`` for who was late.
    """
    import polars as pl

    chosen = (pl.col("kind") == "step") & pl.col("rank").is_not_null() & pl.col("duration_s").is_not_null()
    frame = trace.scan("events").filter(chosen).select("rank", "start_s", "iteration", "duration_s").collect()
    times: dict[int, list[float]] = {}
    for rank, _, _, duration in frame.sort("rank", "start_s", "iteration").rows():
        times.setdefault(rank, []).append(round(duration * 1e6, 3))
    return times
