"""A flat dictionary per interval, for W&B, TensorBoard, MLflow and the like: numbers only, units in the names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError
from ringwright.model.run_tables import HANDED_IN, SIMULATED_JOB

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace


def metrics(trace: Trace, interval_s: float | None = None) -> list[dict[str, float]]:
    """Return a dictionary per interval of ``interval_s`` seconds, or per training step where no interval is given.

    A Trace without steps, or without times, is one interval.

    Parameters
    ----------
    trace
        A Trace, of whatever source.
    interval_s
        Seconds of an interval; None: a training step.

    Returns
    -------
    list of dict
        Numbers by key: ``interval``, ``start_s``, ``comm/<op>/calls``, ``.../size_bytes``, ``.../time_us`` (mean) and
        ``.../wait_us`` (mean time above the group's shortest).

    Raises
    ------
    UsageError
        An interval of 0 or less.

    Examples
    --------
    >>> import ringwright
    >>> rows = ringwright.metrics(ringwright.read(ringwright.sample()))
    >>> sum(row["comm/all-reduce/calls"] for row in rows)
    3839.0
    """
    import polars as pl

    if interval_s is not None and not interval_s > 0:
        raise UsageError(f"an interval of {interval_s} s is not above 0", remedy="give seconds above 0")
    calls = trace.scan("events").filter(pl.col("kind").is_in(["collective", "p2p"])).collect()
    # Where a call begins when all have handed theirs in, a rank waits before it.
    early = pl.when(pl.col("source").is_in(HANDED_IN)).then((pl.col("start_s") - pl.col("enqueue_s")).clip(0))
    held = pl.col("duration_s") + early.fill_null(0.0)
    wait = pl.when(pl.col("sequence").is_not_null()).then(held - held.min().over("communicator", "sequence", "op"))
    calls = calls.with_columns(
        wait.alias("wait_s"),
        pl.col("start_s").fill_null(pl.col("enqueue_s")).alias("at_s"),
        pl.col("multiplicity").fill_null(1).alias("weight"),
    )
    placed = _placed(calls, trace, interval_s)
    rows = []
    for interval in placed.partition_by("interval", maintain_order=True):
        start = interval["at_s"].min()
        row = {"interval": float(interval["interval"][0]), "start_s": float(start) if start is not None else 0.0}  # type: ignore[arg-type]
        rows.append(row | _by_op(interval))
    return rows


def _placed(calls: pl.DataFrame, trace: Trace, interval_s: float | None) -> pl.DataFrame:
    """Give each call the number of its interval."""
    import polars as pl

    if interval_s is not None:
        first = calls["at_s"].min()
        number = ((pl.col("at_s") - (first if first is not None else 0.0)) // interval_s).fill_null(0).cast(pl.Int64)
        return calls.with_columns(number.alias("interval")).sort("interval")
    steps = trace.scan("events").filter((pl.col("kind") == "step") & pl.col("start_s").is_not_null())
    starts = steps.group_by("iteration").agg(pl.col("start_s").min()).sort("start_s").collect()
    if starts.height < 1 or calls["at_s"].null_count() == calls.height:
        return calls.with_columns(pl.lit(0, pl.Int64).alias("interval"))
    numbered = starts.select(pl.col("start_s").alias("at_s"), pl.col("iteration").fill_null(0).alias("interval"))
    placed = calls.sort("at_s").join_asof(numbered.sort("at_s"), on="at_s", strategy="backward")
    told = pl.when(pl.col("source") == SIMULATED_JOB).then("iteration")  # its steps may overlap
    return placed.with_columns(pl.coalesce(told, "interval").fill_null(-1).alias("interval")).sort("interval")


def _by_op(calls: pl.DataFrame) -> dict[str, float]:
    import polars as pl

    weight = pl.col("weight")
    table = calls.group_by("op").agg(
        weight.sum().alias("calls"),
        (pl.col("size_bytes").fill_null(0) * weight).sum().alias("size_bytes"),
        (pl.col("duration_s").mean() * 1e6).alias("time_us"),
        (pl.col("wait_s").mean() * 1e6).alias("wait_us"),
    )
    values: dict[str, float] = {}
    for row in table.sort("op", nulls_last=True).iter_rows(named=True):
        for name in ("calls", "size_bytes", "time_us", "wait_us"):
            if row[name] is not None:
                values[f"comm/{row['op'] or 'unknown'}/{name}"] = float(row[name])
    return values
