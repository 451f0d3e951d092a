"""How long each rank computes by itself in an iteration: the step less the time in which any of its calls is under way.

A slow rank has more of it than it had before and than the others have; a slow network gives no rank more. Each rank's
own clock is
enough. That complements ``arrivals``: where calls overlap with computing, a late rank's wait is hidden from durations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.analysis.intervals import length, union

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

MORE = 2.0  # times as long as in the baseline, and as what the others grew
SHARE = 0.15  # of a baseline's step that the growth must be


def own_times(trace: Trace, *, since: int = 1) -> dict[int, float]:
    """Return rank -> median seconds of its own in an iteration, from iteration ``since`` on.

    Empty without timed steps and calls.
    """
    own: dict[int, list[float]] = {}
    for rank, _, step_s, busy_s in _iterations(trace, since):
        own.setdefault(rank, []).append(step_s - busy_s)
    return {rank: sorted(times)[len(times) // 2] for rank, times in sorted(own.items())}


def busy_times(trace: Trace, *, since: int = 1) -> list[float]:
    """Return per iteration the seconds in which any call is under way, on the rank where that is longest."""
    busy: dict[int, float] = {}
    for _, iteration, _, busy_s in _iterations(trace, since):
        busy[iteration] = max(busy_s, busy.get(iteration, 0.0))
    return [busy[iteration] for iteration in sorted(busy)]


def _iterations(trace: Trace, since: int) -> Iterator[tuple[int, int, float, float]]:
    """Yield rank, iteration, seconds of the step, and seconds of it in which a call is under way."""
    import polars as pl

    events = trace.scan("events").filter(pl.col("rank").is_not_null() & (pl.col("iteration") >= since))
    steps = events.filter((pl.col("kind") == "step") & pl.col("start_s").is_not_null()).collect()
    calls = events.filter(pl.col("kind").is_in(["collective", "p2p"]) & pl.col("duration_s").is_not_null()).collect()
    by_turn = dict(iter(calls.group_by("rank", "iteration")))
    for rank, iteration, start_s, duration_s in steps.select("rank", "iteration", "start_s", "duration_s").iter_rows():
        mine = by_turn.get((rank, iteration))
        if mine is not None and duration_s:
            yield rank, iteration, duration_s, _busy(mine, start_s, duration_s)


def _busy(calls: pl.DataFrame, start_s: float, duration_s: float) -> float:
    """Return how much of a step calls cover."""
    import numpy as np

    begins = np.clip(calls["start_s"].to_numpy(), start_s, start_s + duration_s)
    ends = np.clip(begins + calls["duration_s"].to_numpy(), start_s, start_s + duration_s)
    return length(union(begins, ends))


def slowed(mine: dict[int, float], usual: dict[int, float], step_s: float | None) -> list[int]:
    """Return the ranks whose own time grew, by itself and beside the others'; at most half of the ranks, or none."""
    growth = {rank: mine[rank] / usual[rank] for rank in mine if usual.get(rank)}
    if len(growth) < 2 or not step_s:
        return []
    middle = sorted(growth.values())[(len(growth) - 1) // 2]
    slow = [
        rank
        for rank, times in growth.items()
        if times >= MORE * max(1.0, middle) and mine[rank] - usual[rank] >= SHARE * step_s
    ]
    return slow if len(slow) * 2 <= len(growth) else []
