"""How long the calls of each operation took, where a recording holds it: the columns that a sentence about times must look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ringwright.model.trace import Trace


class OperationTime(NamedTuple):
    """Calls of an operation that carry a time: how many, how long one takes (median, s), and all of them on a rank (mean, s)."""

    op: str
    calls: int
    median_s: float
    total_s: float


def operation_times(trace: Trace) -> list[OperationTime]:
    """Return the times of collectives, sends, receives and benchmark rows by operation, that with most time first."""
    import polars as pl

    timed = trace.scan("events").filter(
        pl.col("kind").is_in(["collective", "p2p", "measurement"]) & (pl.col("duration_s") > 0)
    )
    times = pl.col("multiplicity").fill_null(1)
    has_rank = pl.col("rank").is_not_null()  # a row of no rank, beside rows of ranks, is told of one of them again
    rows = (
        timed.filter(has_rank | ~has_rank.any().over("op"))
        .group_by(pl.col("op").fill_null("unknown"))
        .agg(
            times.sum().alias("calls"),
            pl.col("duration_s").median().alias("median_s"),
            ((pl.col("duration_s") * times * 1e12).round().cast(pl.Int128).sum().cast(pl.Float64) / 1e12).alias(
                "sum_s"
            ),
            pl.col("rank").n_unique().alias("ranks"),
        )
        .collect()
        .rows()
    )
    told = [OperationTime(op, int(calls), median, total / ranks) for op, calls, median, total, ranks in rows]
    return sorted(told, key=lambda row: (-row.total_s, row.op))
