"""What a log holds twice: lines of a framework beside those of NCCL, which tell of the same calls and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from ringwright.trace import Trace


def beside(part: Trace, others: Sequence[Trace]) -> Trace | None:
    """Return what a second reader took from files that were read already, so that nothing in them counts twice.

    Calls that others counted in the same files become measurements, which keep their times; steps are left to the first, and
    so are lines that are of neither, and claims that it made. None where nothing is left.
    """
    import polars as pl

    files = set(part.meta.get("inputs", []))
    mine = [other for other in others if files & set(other.meta.get("inputs", []))]
    if part.meta.get("source") == "bench" or not mine:
        return part
    events = part.df
    is_call = pl.col("kind").is_in(["collective", "p2p"])
    if any(_has(other, is_call) for other in mine):
        kept = pl.when(is_call).then(pl.lit("measurement")).otherwise(pl.col("kind")).alias("kind")
        events = events.with_columns(kept, pl.when(is_call).then(pl.lit("job")).otherwise("task").alias("task"))
    is_step = pl.col("kind") == "step"
    if any(_has(other, is_step) for other in mine):
        events = events.filter(~is_step)
    claims, ledger = part.table("claims"), part.table("ledger").filter(pl.col("outcome") != "other")
    claims = claims.join(pl.concat(other.table("claims") for other in mine), on=["field", "value"], how="anti")
    if events.is_empty() and claims.is_empty():
        return None
    return replace(
        part, tables={**part.tables, "events": events.lazy(), "claims": claims.lazy(), "ledger": ledger.lazy()}
    )


def _has(trace: Trace, which: pl.Expr) -> bool:
    return bool(trace.scan("events").filter(which).limit(1).collect().height)
