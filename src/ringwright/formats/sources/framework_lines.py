"""What a log holds twice: lines of a framework beside those of NCCL, which tell of the same calls and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.ground.trace_tables import Row, fitted, schema

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace


def beside(part: Trace, others: Sequence[Trace]) -> list[Trace]:
    """Return the Traces with what a second reader took from files that they were read from, so that nothing counts twice.

    Calls that others counted in the same files become measurements, which keep their times; steps are left to the first, and
    so are claims that it made. Lines count where they are understood. Where nothing is left of it, the part is left out.
    """
    import polars as pl

    files = set(part.meta.get("inputs", []))
    mine = [other for other in others if files & set(other.meta.get("inputs", []))]
    if part.meta.get("source") == "bench" or not mine:
        return [*others, part]
    # what this reader cannot tell, the first may
    part = replace(part, meta={key: value for key, value in part.meta.items() if key != "limits"})
    events = part.df
    is_call = pl.col("kind").is_in(["collective", "p2p"])
    if any(_has(other, is_call) for other in mine):
        kept = pl.when(is_call).then(pl.lit("measurement")).otherwise(pl.col("kind")).alias("kind")
        events = events.with_columns(kept, pl.when(is_call).then(pl.lit("job")).otherwise("task").alias("task"))
    is_step = pl.col("kind") == "step"
    if any(_has(other, is_step) for other in mine):
        events = events.filter(~is_step)
    claims = part.table("claims")
    claims = claims.join(pl.concat(other.table("claims") for other in mine), on=["field", "value"], how="anti")
    if events.is_empty() and claims.is_empty():
        return [*others]
    part = replace(part, tables={**part.tables, "events": events.lazy(), "claims": claims.lazy()})
    told: list[Trace] = []
    for other in others:
        shared, part = _lines_once(other, part) if any(other is each for each in mine) else (other, part)
        told.append(shared)
    return [*told, part]


def _lines_once(first: Trace, second: Trace) -> tuple[Trace, Trace]:
    """Count a line of a file that both read once: for the second where it took what was nothing to the first."""
    rows, more = first.table("ledger").to_dicts(), second.table("ledger").to_dicts()
    files = {row["file"] for row in rows}
    for row in more:
        if row["file"] not in files:
            continue
        left = 0 if row["outcome"] == "other" else row["lines"]
        row["lines"] = 0
        for other in rows:
            if other["file"] == row["file"] and other["outcome"] == "other":
                moved = min(left, other["lines"])
                other["lines"], row["lines"], left = other["lines"] - moved, row["lines"] + moved, left - moved
    return _with_ledger(first, rows), _with_ledger(second, more)


def _with_ledger(trace: Trace, rows: list[Row]) -> Trace:
    kinds = schema("ledger")
    kept = [row for row in rows if row["lines"]]
    frame = fitted({name: [row[name] for row in kept] for name in kinds}, kinds)
    return replace(trace, tables={**trace.tables, "ledger": frame.lazy()})


def _has(trace: Trace, which: pl.Expr) -> bool:
    return bool(trace.scan("events").filter(which).limit(1).collect().height)
