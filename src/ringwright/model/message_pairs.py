"""Which receive took what a send sent: the n-th send of a rank to another and the n-th receive there, in each communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

ENDS = ("communicator", "src", "dst", "nth")


def message_pairs(events: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return pairs of events as columns ``send`` and ``recv``, which hold what ``key`` says of each; in the order of the sends.

    ``events`` has op, communicator, comm_rank and peer, in the order in which the calls were made; rows that are no send or
    receive, or do not tell both ends, are of no pair.
    """
    import polars as pl

    known = events.filter(pl.all_horizontal(pl.col("comm_rank", "peer").is_not_null()))
    sides = [
        known.filter(pl.col("op") == op)
        .select("communicator", pl.col("comm_rank").alias(own), pl.col("peer").alias(other), pl.col(key).alias(op))
        .with_columns(pl.int_range(pl.len()).over("communicator", "src", "dst").alias("nth"))
        for op, own, other in (("send", "src", "dst"), ("recv", "dst", "src"))
    ]
    joined = sides[0].join(sides[1], on=ENDS, how="inner", nulls_equal=True, maintain_order="left")
    return joined.select("send", "recv")
