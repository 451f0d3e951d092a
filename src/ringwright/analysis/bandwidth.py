"""Bandwidths in one convention, from benchmark rows and from collectives that were timed in a job.

n = the size column (total over ranks for all-gather, reduce-scatter, all-to-all), algbw = n/t, busbw = algbw x f with
f = 2(p-1)/p for all-reduce, (p-1)/p for all-gather, reduce-scatter, all-to-all, 1 for broadcast and reduce; p is the size
of the GROUP. GB/s = 10^9. In a job the transfer is the shortest duration among the ranks: the others also waited in theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ringwright.analysis.noise import spread
from ringwright.analysis.table_claims import TableClaims
from ringwright.bounds.laws import reason
from ringwright.bounds.laws.ceilings import Ceiling, above, ceiling
from ringwright.bounds.laws.ranks import alone
from ringwright.bounds.laws.tables import MOST_BYTES
from ringwright.model.links import links_of

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

_SHARED = ("all-gather", "reduce-scatter", "all-to-all", "gather", "scatter")
_WHOLE = ("broadcast", "reduce", "send-recv", "send", "recv")
_ROOTED = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "send-recv")
_KEYS = ("table", "op", "size_bytes", "nranks", "nnodes", "task", "algorithm", "protocol", "datatype")


def bus_factor(op: str, p: int | None) -> float | None:
    """Return bus over algorithm bandwidth for a group of ``p``; None where the convention or ``p`` is not known."""
    if op in _WHOLE:
        return 1.0
    if p is None or p < 1:
        return None
    if op == "all-reduce":
        return 2 * (p - 1) / p
    return (p - 1) / p if op in _SHARED else None


def bandwidth(trace: Trace) -> list[dict[str, Any]]:
    """Return one entry per table, operation, size and group size, smallest size first.

    ``time_us`` is the median of ``samples``; ``table`` names the benchmark or, for a job's own collectives, the
    communicator; ``kind`` says which. ``busbw_gbs`` is None where the group's size is not known and nothing is printed.
    ``law`` says how an entry breaks a law, "" where it does not: its rates are None then, and nothing is compared with it.
    ``ranks_seen`` of a job's entry says how many ranks were timed: with fewer than ``nranks`` waiting may be inside.
    ``spread`` is the relative standard deviation of one call (robust; None below three calls), ``wait_us`` what a rank
    waited per call beyond the shortest, mean over its ranks (None where one rank alone was timed).
    """
    import polars as pl

    frame = pl.concat([_measured(trace), _timed(trace)], how="diagonal")
    keys = [key for key in ("kind", *_KEYS) if key in frame.columns]
    joined = frame.group_by(keys, maintain_order=True).agg(
        pl.col("duration_s").median(),
        pl.col("duration_s").alias("lasted"),
        pl.col("wait_s").drop_nulls().alias("waits"),
        pl.col("printed").median(),
        pl.col("multiplicity").sum().alias("samples"),
        pl.col("ranks_seen").min(),
        pl.col("first").min(),
    )
    joined = joined.sort("kind", "first", "op", "size_bytes", maintain_order=True)
    claims = TableClaims(trace, ("gpu",))
    nics = _most_nics(trace)
    return [_limited(_entry(row), claims, nics) for row in joined.to_dicts()]


def _most_nics(trace: Trace) -> int:
    """Return how many NICs are named of the node that has most; 0 where none is."""
    import polars as pl

    named = trace.scan("topology").filter(pl.col("kind") == "nic").group_by("host").agg(pl.col("nic").n_unique())
    return int(named.collect()["nic"].max() or 0)  # type: ignore[arg-type]


def _measured(trace: Trace) -> pl.DataFrame:
    """Return the rows of benchmarks."""
    import polars as pl

    rows = trace.scan("events").with_row_index("first").filter(pl.col("kind") == "measurement")
    rows = rows.filter(pl.col("duration_s") > 0, pl.col("size_bytes") >= 0)
    return rows.select(
        pl.lit("benchmark").alias("kind"),
        pl.col("text").fill_null("").alias("table"),
        "op",
        "size_bytes",
        "nranks",
        "nnodes",
        pl.col("task").fill_null("out-of-place"),
        "algorithm",
        "protocol",
        "datatype",
        "duration_s",
        pl.col("value").alias("printed"),
        pl.col("multiplicity").fill_null(1),
        pl.lit(None, pl.Int64).alias("ranks_seen"),
        pl.col("first").cast(pl.Int64),
        pl.lit(None, pl.Float64).alias("wait_s"),
    ).collect()


def _timed(trace: Trace) -> pl.DataFrame:
    """Return the collectives of a job, one row a sequence: the shortest duration among its ranks."""
    import polars as pl

    events = trace.scan("events").with_row_index("first").filter(pl.col("kind") == "collective")
    events = events.filter(pl.col("duration_s") > 0, pl.col("size_bytes").is_between(1, MOST_BYTES))
    known = pl.when(pl.col("ground").fill_null("read") != "assumed").then(pl.col("size"))
    comms = trace.scan("communicators").select("communicator", "comm_id", known.alias("size"))
    named = events.join(comms, on="communicator", how="left").with_columns(
        pl.coalesce("nranks", "size").alias("nranks"), pl.col("comm_id").fill_null("unknown group").alias("table")
    )
    # without a sequence nothing joins ranks: each row then stands for itself
    alone = pl.when(pl.col("sequence").is_null()).then(pl.col("first").cast(pl.Int64)).otherwise(None)
    once = (
        named.with_columns(alone.alias("alone"))
        .group_by("table", "communicator", "sequence", "alone", "op", "nranks")
        .agg(
            pl.col("duration_s").min(),
            pl.when(pl.len() > 1).then(_mean_of_ranks("duration_s") - pl.col("duration_s").min()).alias("wait_s"),
            pl.col("size_bytes").median().round().cast(pl.Int64),
            pl.max_horizontal(pl.col("rank").drop_nulls().n_unique(), pl.lit(1)).alias("ranks_seen"),
            pl.col("multiplicity").max().fill_null(1),
            pl.col("first").min(),
            *(
                pl.col(name).sort_by("first").drop_nulls().first()
                for name in ("algorithm", "protocol", "datatype", "nnodes")
            ),
        )
    )
    rows = once.select(
        pl.lit("job").alias("kind"),
        "table",
        "op",
        "size_bytes",
        "nranks",
        "nnodes",
        pl.lit("job").alias("task"),
        "algorithm",
        "protocol",
        "datatype",
        "duration_s",
        pl.lit(None, pl.Float64).alias("printed"),
        "multiplicity",
        pl.col("ranks_seen").cast(pl.Int64),
        pl.col("first").cast(pl.Int64),
        "wait_s",
    )
    return rows.collect().sort("first")  # in one order each time: so are sums of floats, to the last digit


def _mean_of_ranks(name: str) -> pl.Expr:
    """Return the mean of seconds over the rows of ranks; a row of no rank stands for whichever was fastest, and for no other.

    Summed in whole picoseconds: a sum of floats depends on the order that threads choose.
    """
    import polars as pl

    picoseconds = (pl.col(name) * 1e12).round().cast(pl.Int128, strict=False)
    has_rank = pl.col("rank").is_not_null()
    counts = has_rank | ~has_rank.any()
    return picoseconds.filter(counts).sum().cast(pl.Float64) / counts.sum() / 1e12


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    time_s, size, p = row["duration_s"], row["size_bytes"], row["nranks"]
    algorithm_gbs = size / time_s / 1e9
    factor = bus_factor(row["op"] or "", p)
    bus = algorithm_gbs * factor if factor is not None else row["printed"]
    varies, waits = spread(row["lasted"]), row["waits"]
    return {
        "op": row["op"],
        "size_bytes": size,
        "time_us": round(time_s * 1e6, 3),
        "algbw_gbs": _rounded(algorithm_gbs),
        "busbw_gbs": None if bus is None else _rounded(bus),
        "table": row["table"],
        "nranks": p,
        "nnodes": row["nnodes"],
        "kind": row["kind"],
        "task": row["task"],
        "algorithm": row["algorithm"],
        "protocol": row["protocol"],
        "datatype": row["datatype"],
        "samples": int(row["samples"]),
        "ranks_seen": row["ranks_seen"],
        "spread": None if varies is None else round(varies, 5),
        "wait_us": round(math.fsum(waits) / len(waits) * 1e6, 3) if waits else None,
    }


def _limited(entry: dict[str, Any], claims: TableClaims, nics: int) -> dict[str, Any]:
    """Take the rates from an entry of one rank alone, or that is faster than its GPUs' links, and say so."""
    if entry["kind"] == "benchmark" and (why := alone(entry["nranks"])):
        return entry | {"law": reason("alone", why), "algbw_gbs": None, "busbw_gbs": None}
    broken = above(entry["busbw_gbs"], _ceiling(entry, _gpu(entry, claims), nics))
    if not broken:
        return entry | {"law": ""}
    return entry | {"law": reason("ceiling", broken), "algbw_gbs": None, "busbw_gbs": None}


def _gpu(entry: Mapping[str, Any], claims: TableClaims) -> str:
    told = claims.job("gpu") if entry["kind"] == "job" else claims.table(entry["table"], "gpu")
    return "" if told is None or told.is_disputed else told.value


def _ceiling(entry: Mapping[str, Any], gpu: str, nics: int) -> Ceiling | None:
    # the root of a job's own call is done when its buffers are full, before the NICs are
    nodes = None if entry["kind"] == "job" and entry["op"] in _ROOTED else entry["nnodes"]
    return ceiling(entry["op"] or "", entry["nranks"], nodes, gpu, nics=nics)


def ceiling_share(trace: Trace, entry: Mapping[str, Any]) -> float | None:
    """Return an entry's bus bandwidth over what the links of its GPU can carry; None where no GPU that is known is named."""
    gpu = _gpu(entry, TableClaims(trace, ("gpu",)))
    limit = _ceiling(entry, gpu, _most_nics(trace)) if links_of(gpu) is not None else None
    return None if limit is None or entry["busbw_gbs"] is None else round(entry["busbw_gbs"] / limit.busbw_gbs, 4)


def _rounded(rate_gbs: float) -> float:
    """Return a rate to four digits behind the point; one so slow that none is left keeps three of its own."""
    return round(rate_gbs, 4) or float(f"{rate_gbs:.3g}")
