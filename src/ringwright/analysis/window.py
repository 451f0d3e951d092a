"""A recording too large to be looked at call by call: the calls of some iterations, of all ranks, stand for the others.

Counts and bytes are of all calls; what compares calls in time (clocks, waits, late ranks, bursts) looks at whole iterations
evenly spread over the run, so that every rank is compared with every other and a change of pace is still seen. Where a recording
knows no iterations, blocks of calls with the same numbers in each communicator take their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

MOST_ROWS = 1_000_000  # looked at in time; more than a million take more than about 1.5 GiB
_BUSY = ("collective", "p2p", "compute", "memory", "sync", "phase", "step")
LEAST_NUMBERED = 0.5  # of the rows, that must know their iteration
BLOCK = 64  # calls of a communicator
ENOUGH_TURNS = 24  # iterations that tell who is late; where whole ones are fewer, those of some ranks are looked at


def window(trace: Trace, most_rows: int = MOST_ROWS) -> Trace:
    """Return a Trace with all calls, or with those of every k-th iteration where they are more than ``most_rows``; it says so."""
    import polars as pl

    events = trace.scan("events")
    is_busy = pl.col("kind").is_in(_BUSY)
    of = pl.col("iteration")
    told = events.filter(is_busy).select(pl.len().alias("rows"), of.count().alias("told"), of.n_unique().alias("turns"))
    rows, numbered, turns = told.collect(engine="streaming").row(0)
    if rows <= most_rows:
        return trace
    what = "iterations"
    if numbered < LEAST_NUMBERED * rows or turns < 2:
        what, of = f"blocks of {BLOCK} calls of each communicator", pl.col("sequence") // BLOCK
    kept, all_ = _kept(events.filter(is_busy), of, most_rows)
    near = events.filter(~is_busy | of.is_in(kept)).collect(engine="streaming")
    limit = (
        f"times were compared in {len(kept):,} of {all_:,} {what}, spread over the run: "
        f"{near.height:,} of {rows:,} rows; counts and bytes are of all"
    )
    meta = {**trace.meta, "limits": [*trace.meta.get("limits", []), limit]}
    return replace(trace, tables={**trace.tables, "events": _held(near)}, meta=meta)


def of_late_ranks(trace: Trace, near: Trace, most_rows: int = MOST_ROWS) -> Trace:
    """Return what tells who is late: ``near``, or where that has few iterations more of them, of some ranks.

    These are the ranks that wait least in the calls of the largest groups, for whom the others wait there, and as many others
    evenly spread; of each the whole of its smallest group.
    """
    import polars as pl

    if near is trace:
        return near
    of = pl.col("iteration")
    calls = near.df.filter((pl.col("kind") == "collective") & of.is_not_null() & pl.col("rank").is_not_null())
    turns, rows, ranks = calls["iteration"].n_unique(), calls.height, calls["rank"].n_unique()
    if not 0 < turns < ENOUGH_TURNS or 2 * turns > _kept(trace.scan("events"), of, 1)[1]:
        return near
    chosen = _waited_for(trace, calls, most_rows * ranks * turns // (rows * ENOUGH_TURNS))
    if len(chosen) < 2:  # of so many calls a rank that no two fit
        return near
    busy = trace.scan("events").filter(pl.col("kind").is_in(_BUSY))
    kept, all_ = _kept(busy.filter(pl.col("rank").is_in(chosen)), of, most_rows)
    others = near.scan("events").filter(~pl.col("kind").is_in(_BUSY))
    mine = _held(busy.filter(pl.col("rank").is_in(chosen) & of.is_in(kept)).collect(engine="streaming"))
    limit = (
        f"who is late was looked for in {len(kept):,} of {all_:,} iterations of {len(chosen):,} of {ranks:,} ranks: "
        "those for whom others wait, and as many others"
    )
    meta = {**near.meta, "limits": [*near.meta["limits"], limit]}
    return replace(near, tables={**near.tables, "events": pl.concat([mine, others])}, meta=meta)


def _held(rows: pl.DataFrame) -> pl.LazyFrame:
    """Return rows of which columns with one value throughout, or none, take no memory."""
    import polars as pl

    same = [pl.lit(rows[name][0], kind).alias(name) for name, kind in rows.schema.items() if rows[name].n_unique() == 1]
    told = {each.meta.output_name() for each in same}
    return rows.select(name for name in rows.columns if name not in told).lazy().with_columns(same).select(rows.columns)


def _waited_for(trace: Trace, calls: pl.DataFrame, most: int) -> list[int]:
    """Return ranks, about ``most``: half of them wait least in the calls of the largest groups, half are evenly spread."""
    import polars as pl

    largest = calls.filter(pl.col("nranks").eq_missing(calls["nranks"].max()) & (pl.col("duration_s") > 0))
    waited = pl.col("duration_s") - pl.col("duration_s").min().over("communicator", "sequence")
    order = (
        largest.select("rank", waited.alias("wait")).group_by("rank").agg(pl.col("wait").mean()).sort("wait", "rank")
    )
    group: dict[int, tuple[int, ...]] = {}
    for members in sorted(trace.table("communicators")["members"].drop_nulls().to_list(), key=len, reverse=True):
        if 1 < len(members) <= most // 4:
            group |= dict.fromkeys(members, tuple(members))
    chosen: dict[int, None] = {}
    everyone = sorted(set(calls["rank"]))
    step = max(1, len(everyone) // max(1, most // 16))
    spread = [rank for first in range(step) for rank in everyone[first::step]]
    for ranks, enough in ((order["rank"].to_list(), most // 2), (spread, most)):
        for rank in ranks:
            if len(chosen) >= enough:
                break
            chosen |= dict.fromkeys(group.get(rank, (rank,)))
    return sorted(chosen)


def _kept(events: pl.LazyFrame, of: pl.Expr, most_rows: int) -> tuple[list[int], int]:
    """Return the numbers of the iterations that are kept, evenly spread, the first among them; and how many there are."""
    import polars as pl

    counts = events.filter(of.is_not_null()).group_by(of.alias("turn")).agg(pl.len().alias("rows")).sort("turn")
    numbers, sizes = (column.to_list() for column in counts.collect(engine="streaming"))
    share = max(1, -(-sum(sizes) // most_rows))
    kept = numbers[::share]
    return kept, len(numbers)


@contextmanager
def as_large_as(trace: Trace, near: Trace) -> Iterator[None]:
    """Have tables go through memory piece by piece while the body runs, where a recording is too large to be looked at whole."""
    import polars as pl

    if near is trace:
        yield
        return
    with pl.Config(engine_affinity="streaming"):
        yield
