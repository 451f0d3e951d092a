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
LEAST_NUMBERED = 0.5  # of the rows, that must know their iteration
BLOCK = 64  # calls of a communicator


def window(trace: Trace, most_rows: int = MOST_ROWS) -> Trace:
    """Return a Trace with all calls, or with those of every k-th iteration where they are more than ``most_rows``; it says so."""
    import polars as pl

    events = trace.scan("events")
    is_busy = pl.col("kind").is_in(["collective", "p2p", "compute", "memory", "sync", "phase", "step"])
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
    return replace(trace, tables={**trace.tables, "events": near.lazy()}, meta=meta)


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
