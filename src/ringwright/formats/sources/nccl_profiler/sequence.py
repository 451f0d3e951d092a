"""Which operations of different ranks are the same one.

NCCL numbers collectives per communicator and function, so a number alone joins nothing. Where every rank's counters run
without a gap, the place in the rank's own order is the number. Where records were dropped, the counters of the other
functions tell how many operations went before, and the rank that saw most decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def number(operations: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    """Return ``operations`` with a column ``sequence``, and the communicators whose numbers are inferred.

    Columns used: ``communicator``, ``file``, ``context``, ``ns``, ``counter`` (name of the counter), ``seq`` (its value).
    """
    import polars as pl

    own = ["communicator", "file", "context"]
    placed = operations.sort([*own, "ns", "id"]).with_columns(
        (pl.int_range(pl.len()).over(own)).alias("sequence"),
        (pl.int_range(pl.len()).over([*own, "counter"])).alias("place"),
    )
    gaps = placed.group_by("communicator").agg((pl.col("seq") != pl.col("place")).any().alias("gap"))
    inferred = sorted(gaps.filter("gap")["communicator"].to_list())
    if not inferred:
        return placed.drop("place"), []
    whole = placed.filter(~pl.col("communicator").is_in(inferred))
    parts = [
        _infer(part) for part in placed.filter(pl.col("communicator").is_in(inferred)).partition_by("communicator")
    ]
    return pl.concat([whole, *parts]).drop("place"), inferred


def _infer(part: pl.DataFrame) -> pl.DataFrame:
    """Number the operations of one communicator in which a counter has gaps or stands still."""
    import polars as pl

    if part.select(pl.struct("file", "context", "counter", "seq").is_duplicated().any()).item():
        return part  # a replayed graph repeats its numbers: the rank's own order is all there is
    positions: dict[tuple[str, int], int] = {}
    for _, rank in part.group_by(["file", "context"], maintain_order=True):
        seen: dict[str, int] = {}
        total = 0
        for counter, seq in zip(rank["counter"], rank["seq"], strict=True):
            total += seq + 1 - seen.get(counter, 0)
            seen[counter] = seq + 1
            key = (counter, seq)
            positions[key] = max(positions.get(key, 0), total - 1)
    order = sorted(positions, key=lambda key: (positions[key], key))
    numbers = pl.DataFrame(
        {"counter": [c for c, _ in order], "seq": [s for _, s in order], "sequence": list(range(len(order)))},
        schema={"counter": pl.String, "seq": pl.Int64, "sequence": pl.Int64},
    )
    columns = part.columns
    return part.drop("sequence").join(numbers, on=["counter", "seq"], how="left").select(columns)
