"""Series of calls whose times may be compared: sizes known, seen by two ranks or more, told apart by step.

A call of unknown size may be a larger one; a call seen on one rank alone may have waited for the others; one that begins
while an earlier call of its rank is in progress may have waited for that one; and the same call may take longer at one
position in the step than at another, in every step. So each time is taken relative to the usual time at its
position in the step. Steps are those that the source marks; else the shortest period in which the
communicator's calls repeat to the end; where neither is to be had, nothing is compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ringwright.bounds.laws import Refusals
from ringwright.bounds.laws.series import LEAST_RANKS, incomparable

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

LAW = "series"
QUEUED_S = 1e-6  # by which a call must begin before another ends, to have waited for it
LEAST_SAMPLES = 16
LEAST_REPEATS = 6  # periods that must follow each other before they pass for steps
MOST_CALLS = 200_000  # of a communicator, the latest: where a period is looked for
_KEYS = ["communicator", "op", "size_bytes"]


class Series(NamedTuple):
    """Times of one call in order: its ``name``, ``time_s`` relative to its position's usual time, ``step`` of each."""

    name: str
    time_s: list[float]
    step: list[int]
    where: str


def series(trace: Trace) -> Iterator[Series]:
    """Yield the series of collectives that may be compared, in order of communicator, operation and size."""
    for row in _comparable(_samples(trace)):
        communicator, op, size_bytes, times, steps, file, line, sequence = row
        name = f"{op} of {size_bytes} B in communicator {communicator}"
        yield Series(name, times, steps, f"{file}: record {line}, sequence {sequence}")


def refusals(trace: Trace) -> Refusals:
    """Return the timed collectives that are in no series, counted by reason, with the first example of each."""
    import polars as pl

    refused = Refusals()
    frame = _samples(trace, every=True)
    reasons: dict[str, pl.Expr] = {}
    for size, ranks, queued in itertools.product((None, 1), (LEAST_RANKS - 1, LEAST_RANKS), (False, True)):
        sized = pl.col("size_bytes").is_null() if size is None else pl.col("size_bytes").is_not_null()
        seen = (pl.col("ranks") < LEAST_RANKS) if ranks < LEAST_RANKS else (pl.col("ranks") >= LEAST_RANKS)
        here = sized & seen & (pl.col("queued") == queued)
        if why := incomparable(size, ranks, queued):
            reasons[why] = reasons[why] | here if why in reasons else here
    for why, chosen in reasons.items():
        rows = frame.filter(chosen).sort("communicator", "sequence").head(1).to_dicts()
        if rows:
            where = f"{rows[0]['op']}, sequence {rows[0]['sequence']} of communicator {rows[0]['communicator']}"
            refused.refuse(LAW, f"{where}: {why}", frame.filter(chosen).height)
    return refused


def _samples(trace: Trace, *, every: bool = False) -> pl.DataFrame:
    """Return one row per collective, with the shortest time of any member: waiting does not lengthen it."""
    import polars as pl

    timed = trace.scan("events").filter(
        (pl.col("kind") == "collective")
        & (pl.col("duration_s") > 0)
        & pl.col("sequence").is_not_null()
        & pl.col("communicator").is_not_null()
    )
    ended = (pl.col("start_s") + pl.col("duration_s")).cum_max().shift(1).over("rank")
    queued = ((pl.col("start_s") + QUEUED_S < ended) & pl.col("rank").is_not_null()).fill_null(value=False)
    marked = timed.sort("rank", "start_s").with_columns(queued.alias("queued"))
    once = marked.group_by(*_KEYS, "sequence").agg(
        pl.col("duration_s").min(),
        pl.col("rank").drop_nulls().n_unique().alias("ranks"),
        pl.col("iteration").min(),
        pl.col("file").first(),
        pl.col("line").first(),
        pl.col("queued").any(),
    )
    if not every:
        once = once.filter(pl.col("size_bytes").is_not_null() & (pl.col("ranks") >= LEAST_RANKS) & ~pl.col("queued"))
    return once.collect()


def _comparable(samples: pl.DataFrame) -> Iterator[tuple[int, str, int, list[float], list[int], str, int, int]]:
    import polars as pl

    steps = [_stepped(part.sort("sequence")) for part in samples.partition_by("communicator", maintain_order=True)]
    if not steps:
        return
    told = pl.concat(steps).filter(pl.col("step").is_not_null()).sort("sequence")
    nth = pl.col("sequence").rank("ordinal").over([*_KEYS, "step"]).alias("nth")
    usual = pl.col("duration_s").median()
    relative = pl.col("duration_s") * usual.over(_KEYS) / usual.over([*_KEYS, "nth"])
    grouped = (
        told.with_columns(nth)
        .with_columns(relative.alias("relative_s"))
        .group_by(_KEYS, maintain_order=True)
        .agg("relative_s", "step", pl.col("file").first(), pl.col("line").first(), pl.col("sequence").first())
        .filter(pl.col("step").list.len() >= LEAST_SAMPLES)
        .sort(_KEYS)
    )
    yield from grouped.rows()


def _stepped(calls: pl.DataFrame) -> pl.DataFrame:
    """Add ``step`` to the calls of one communicator: marked, else the period; null where neither says."""
    import polars as pl

    if calls["iteration"].is_not_null().any():
        return calls.with_columns(pl.col("iteration").alias("step"))
    kinds = calls.select(pl.struct("op", "size_bytes").rank("dense")).to_series().to_list()[-MOST_CALLS:]
    repeated, period = _period(kinds)
    steps: list[int | None] = [None] * (calls.height - repeated)
    steps += [number // period for number in range(repeated)]
    return calls.with_columns(pl.Series("step", steps, pl.Int64))


def _period(kinds: list[int]) -> tuple[int, int]:
    """Return how many of the last calls repeat, and with which period; (0, 1) where they do not."""
    backwards = kinds[::-1]
    border = [0] * len(backwards)  # the longest proper prefix that is a suffix too, as Knuth, Morris and Pratt count it
    best = (0, 1)
    for end, kind in enumerate(backwards):
        length = border[end - 1] if end else 0
        while length and kind != backwards[length]:
            length = border[length - 1]
        border[end] = length + 1 if end and kind == backwards[length] else 0
        period = end + 1 - border[end]
        if period * LEAST_REPEATS <= end + 1:
            best = (end + 1, period)
    return best
