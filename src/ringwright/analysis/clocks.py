"""One clock for all ranks, or a reason why there is none: the end of a collective is the event that ranks have in common.

A collective in which everybody waits for everybody ends everywhere at about the same moment. A rank's offset is the median by
which its ends are late; its uncertainty is half of the range that holds 90 % of what remains. Where a steady drift halves that
range it is taken out too. Rooted operations do not count: their members may leave at different times.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from ringwright.model.trace import Trace

MEETING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier")
LEAST_COMMON = 3
ROUNDS = 20
DRIFT_POINTS = 16


@dataclass(frozen=True)
class Clock:
    """A rank's time less ``offset_s`` and less ``drift`` times (time - ``since_s``) is the common time, +- ``uncertainty_s``."""

    rank: int
    offset_s: float
    drift: float
    since_s: float
    uncertainty_s: float
    common: int  # collectives that it rests on


@dataclass(frozen=True)
class Alignment:
    """The clocks of all ranks; ``refused`` says why no common clock can be given, empty where it can."""

    clocks: dict[int, Clock]
    refused: str = ""

    @property
    def uncertainty_s(self) -> float:
        """The worst of all ranks."""
        return max((clock.uncertainty_s for clock in self.clocks.values()), default=0.0)

    def moved(self, events: pl.DataFrame) -> pl.DataFrame:
        """Return events with times on the common clock."""
        import polars as pl

        def of(name: str) -> pl.Expr:
            values = {rank: getattr(clock, name) for rank, clock in self.clocks.items()}
            return pl.col("rank").replace_strict(values, default=0.0, return_dtype=pl.Float64)

        if not self.clocks:
            return events
        by = of("offset_s")
        times = [pl.col(name) - by - of("drift") * (pl.col(name) - of("since_s")) for name in ("start_s", "enqueue_s")]
        return events.with_columns(times)


_aligned: dict[int, Alignment] = {}  # by the identity of a Trace that lives


def align(trace: Trace) -> Alignment:
    """Return the clocks of a Trace's ranks, worked out once; ranks of one clock domain need no alignment."""
    key = id(trace)
    if key not in _aligned:
        _aligned[key] = _align(trace)
        weakref.finalize(trace, _aligned.pop, key, None)
    return _aligned[key]


def _align(trace: Trace) -> Alignment:
    import polars as pl

    timed = (
        trace.scan("events")
        .filter(
            pl.col("kind").eq("collective") & pl.all_horizontal(pl.col("rank", "start_s", "duration_s").is_not_null())
        )
        .select("communicator", "sequence", "op", "rank", "clock", "start_s", "duration_s")
        .collect()
    )
    ranks = sorted(timed["rank"].unique().to_list())
    domains = timed.group_by("rank").agg(pl.col("clock").first())["clock"]
    if len(ranks) < 2 or (domains.null_count() == 0 and domains.n_unique() == 1):
        return Alignment({rank: Clock(rank, 0.0, 0.0, 0.0, 0.0, 0) for rank in ranks})
    ends = (
        timed.filter(pl.col("op").is_in(MEETING) & pl.col("sequence").is_not_null())
        .with_columns((pl.col("start_s") + pl.col("duration_s")).alias("end_s"))
        .group_by("communicator", "sequence", "rank")
        .agg(pl.col("end_s").last())
        .filter(pl.len().over("communicator", "sequence") > 1)
    )
    return _solve(ends, ranks, float(timed["duration_s"].median() or 0.0))  # type: ignore[arg-type]


def _solve(ends: pl.DataFrame, ranks: list[int], typical_s: float) -> Alignment:
    import numpy as np

    missing = sorted(set(ranks) - set(ends["rank"].to_list()))
    if missing:
        return Alignment({}, f"rank {missing[0]} has no collective in common with another rank")
    calls = ends.select(number=_numbered(ends))["number"].to_numpy()
    who = np.searchsorted(np.array(ranks), ends["rank"].to_numpy())
    apart = _apart(calls, who, ranks)
    if apart:
        return Alignment({}, apart)
    when = ends["end_s"].to_numpy()
    offset, drift = np.zeros(len(ranks)), np.zeros(len(ranks))
    since = float(when.min())
    late = _late(when, calls)
    for _ in range(ROUNDS):
        late = _late(when - offset[who] - drift[who] * (when - since), calls)
        step = _medians(late, who)
        offset += step
        if np.abs(step).max() < 1e-9:
            break
    clocks = {}
    of_rank = np.split(np.argsort(who, kind="stable"), np.cumsum(np.bincount(who))[:-1])
    for number, (rank, mine) in enumerate(zip(ranks, of_rank, strict=True)):
        left = late[mine] - np.median(late[mine])
        slope = _drift(when[mine] - since, left)
        if slope:
            drift[number] = slope
            trend = slope * (when[mine] - since)
            left = left - trend
            offset[number] += float(np.median(left))
            left = left - np.median(left)
        clocks[rank] = Clock(rank, float(offset[number]), float(drift[number]), since, _spread(left) / 2, len(mine))
    few = [clock.rank for clock in clocks.values() if clock.common < LEAST_COMMON]
    alignment = Alignment(clocks)
    if few:
        return Alignment(clocks, f"rank {few[0]} shares fewer than {LEAST_COMMON} collectives with others")
    if alignment.uncertainty_s > typical_s:
        return Alignment(
            clocks,
            f"clocks agree to {alignment.uncertainty_s * 1e6:,.0f} us only, a typical collective takes {typical_s * 1e6:,.0f} us",
        )
    return alignment


def _numbered(ends: pl.DataFrame) -> pl.Expr:
    import polars as pl

    return pl.struct("communicator", "sequence").rank("dense").cast(pl.Int64) - 1


def _late(when: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """Return by how much each end is later than the median end of its collective."""
    late: np.ndarray = when - _medians(when, calls)[calls]
    return late


def _medians(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the median of the values of each number from 0 on; every number has some."""
    import numpy as np

    ordered = values[np.lexsort((values, of))]
    sizes = np.bincount(of)
    first = np.cumsum(sizes) - sizes
    medians: np.ndarray = (ordered[first + (sizes - 1) // 2] + ordered[first + sizes // 2]) / 2
    return medians


def _drift(since: np.ndarray, left: np.ndarray) -> float:
    """Return seconds per second, where a steady drift explains half of what is left; else 0."""
    import numpy as np

    if len(since) < DRIFT_POINTS or np.ptp(since) <= 0:
        return 0.0
    slope = float(np.polyfit(since, left, 1)[0])
    return slope if _spread(left - slope * since) < _spread(left) / 2 else 0.0


def _spread(values: np.ndarray) -> float:
    import numpy as np

    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low)


def _apart(calls: np.ndarray, who: np.ndarray, ranks: list[int]) -> str:
    """Return why some ranks cannot be compared: no chain of common collectives joins them."""
    import numpy as np
    import rustworkx

    graph = rustworkx.PyGraph()
    graph.add_nodes_from(range(len(ranks) + int(calls.max(initial=-1)) + 1))
    graph.add_edges_from_no_data(list(zip(who.tolist(), (calls + len(ranks)).tolist(), strict=True)))
    parts = rustworkx.connected_components(graph)
    groups = [sorted(node for node in part if node < len(ranks)) for part in parts]
    groups = sorted((group for group in groups if group), key=lambda group: group[0])
    if len(groups) < 2:
        return ""
    here, there = (ranks[int(np.min(group))] for group in groups[:2])
    return f"no chain of common collectives joins rank {here} and rank {there}"
