"""Logical operations: what was asked of the network, once per (communicator, sequence), from folded or single events."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

_KEYS = ("communicator", "op", "size_bytes", "count", "datatype", "reduce_op", "root", "nranks", "phase", "layer")
MOST_ROWS = 1_000_000  # joined at a time: about half a gigabyte
_POINTS = (
    *("communicator", "comm_rank", "rank", "nranks", "op", "peer"),
    *("size_bytes", "count", "datatype", "phase", "layer"),
)


def logical(trace: Trace) -> pl.DataFrame:
    """Return one row per communicator and kind of operation: ``operations``, ``records``, ``bytes``.

    Collectives count once per sequence; sends and receives once per record. Sends and receives that together reach
    every peer are one ``all-to-all`` (that is how it is done before NCCL 2.28).
    """
    import polars as pl

    events = trace.scan("events")
    frame = pl.concat([_collectives(events), _pointwise(point_to_point(trace))])
    return frame.with_columns((pl.col("size_bytes").fill_null(0) * pl.col("operations")).alias("bytes")).sort(
        "op", "size_bytes", "communicator", nulls_last=True
    )


def folded(trace: Trace) -> Trace:
    """Return the Trace with its calls as weighted rows, one per kind of operation: same operations and bytes, no times.

    What algorithms they used stays as rows of kind ``tuning``.
    """
    import polars as pl

    from ringwright.ground.trace_tables import conform

    events = trace.scan("events")
    calls = pl.col("kind").is_in(["collective", "p2p"])
    once = _collectives(events).rename({"operations": "multiplicity"}).with_columns(kind=pl.lit("collective"))
    weight = pl.col("multiplicity", "records").sum()
    points = events.filter(pl.col("kind") == "p2p").group_by(_POINTS).agg(weight).with_columns(kind=pl.lit("p2p"))
    choice = ("op", "size_bytes", "algorithm", "protocol", "channels")
    told = events.filter(calls & pl.col("algorithm").is_not_null()).group_by(choice).agg(weight)
    others = events.filter(~calls).collect()
    made = [once, points.collect(), told.with_columns(kind=pl.lit("tuning")).collect()]
    rows = pl.concat([others, *(conform("events", frame) for frame in made)])
    return replace(trace, tables={**trace.tables, "events": rows.lazy()})


def _collectives(events: pl.LazyFrame) -> pl.DataFrame:
    """Return one row per kind of collective; of many rows some at a time, in which all ranks of an operation come together."""
    import polars as pl

    mine = events.filter(pl.col("kind") == "collective")
    counts = mine.group_by("communicator").agg(pl.len().alias("rows")).sort("communicator").collect()
    if sum(counts["rows"]) <= MOST_ROWS:
        return _once(mine)
    needed = mine.select(*_KEYS, "sequence", "multiplicity", "records")
    lots = counts.with_columns(lot=pl.col("rows").cum_sum() // MOST_ROWS).group_by("lot", maintain_order=True)
    bounds = lots.agg(pl.col("communicator").min(), pl.col("communicator").max().alias("high"), pl.col("rows").sum())
    told = []
    for number, (low, high, rows) in enumerate(bounds.drop("lot").rows()):
        unknown = pl.col("communicator").is_null() if number == 0 else pl.lit(value=False)
        within = needed.filter(pl.col("communicator").is_between(low, high) | unknown)
        # Of a communicator that is too large by itself some operations at a time.
        pieces = -(-rows // MOST_ROWS)
        for piece in range(pieces):
            turn = pl.col("sequence").fill_null(0) % pieces == piece
            told.append(_once(within.filter(turn).collect(engine="streaming").lazy()))
    return pl.concat(told).group_by(_KEYS).agg(pl.col("operations", "records").sum())


def _once(mine: pl.LazyFrame) -> pl.DataFrame:
    import polars as pl

    single = mine.filter(pl.col("sequence").is_not_null())
    # Ranks may hand in different sizes to one operation (all-to-all-v): the largest stands for it.
    same = ("communicator", "op", "sequence")
    rest = [pl.col(name).first() for name in _KEYS if name not in (*same, "size_bytes", "count")]
    largest = (
        pl.col("size_bytes", "count").sort_by("size_bytes").last(),
        pl.col("multiplicity").max(),
        pl.col("records").sum(),
    )
    once = single.group_by(same).agg(*rest, *largest)
    joined = once.group_by(_KEYS).agg(pl.col("multiplicity").sum().alias("operations"), pl.col("records").sum())
    folded = mine.filter(pl.col("sequence").is_null()).group_by(_KEYS)
    weighted = folded.agg(pl.col("multiplicity").sum().alias("operations"), pl.col("records").sum())
    both = pl.concat([joined, weighted]).group_by(_KEYS).agg(pl.col("operations", "records").sum())
    return both.collect(engine="in-memory")


def point_to_point(trace: Trace) -> pl.DataFrame:
    """Return sends, receives and recognised all-to-alls by (communicator, comm_rank, peer) with ``operations``."""
    import polars as pl

    grouped = trace.scan("events").filter(pl.col("kind") == "p2p").group_by(_POINTS)
    frame = grouped.agg(pl.col("multiplicity").sum().alias("operations"), pl.col("records").sum()).collect()
    return _recognise_all_to_all(frame) if frame.height else frame


def _recognise_all_to_all(frame: pl.DataFrame) -> pl.DataFrame:
    """Take from each rank's sends and receives as many as reach all peers equally: each such set is one all-to-all."""
    import polars as pl

    keys = ["communicator", "comm_rank", "rank", "nranks", "size_bytes", "count", "datatype", "phase", "layer"]
    others = pl.col("peer") != pl.col("comm_rank").fill_null(-1)
    sides = frame.group_by(keys).agg(
        (pl.col("op").eq("send") & others).sum().alias("to"),
        (pl.col("op").eq("recv") & others).sum().alias("back"),
        pl.col("operations").filter(others).min().alias("sets"),
        (~others).any().alias("itself"),
    )
    p = pl.col("nranks")
    whole = (pl.col("to") >= p - 1) & (pl.col("back") >= p - 1) & ((p > 2) | pl.col("itself")) & (p > 1)
    whole = whole & pl.col("comm_rank").is_not_null()
    sets = sides.filter(whole).select(*keys, "sets")
    if not sets.height:
        return frame
    joined = frame.join(sets, on=keys, how="left", nulls_equal=True).with_columns(pl.col("sets").fill_null(0))
    rest = joined.with_columns((pl.col("operations") - pl.col("sets")).alias("left"))
    rest = rest.with_columns((pl.col("records") * pl.col("left") // pl.col("operations")).alias("kept"))
    used = rest.group_by(keys).agg((pl.col("records") - pl.col("kept")).sum().alias("records"))
    made = sets.join(used, on=keys, nulls_equal=True).with_columns(
        pl.lit("all-to-all").alias("op"),
        pl.lit(None, pl.Int32).alias("peer"),
        (pl.col("size_bytes") * p).alias("size_bytes"),
        pl.col("sets").alias("operations"),
    )
    kept = rest.filter(pl.col("left") > 0).with_columns(
        pl.col("left").alias("operations"), pl.col("kept").alias("records")
    )
    return pl.concat([kept.select(frame.columns), made.select(frame.columns)])


def _pointwise(points: pl.DataFrame) -> pl.DataFrame:
    """Bring point-to-point rows to the logical keys: all-to-all once per communicator, the others once per record."""
    import polars as pl

    columns = [*_KEYS, "operations", "records"]
    if not points.height:
        kinds: dict[str, Any] = dict.fromkeys(columns, pl.Int64)
        kinds |= dict.fromkeys(("op", "datatype", "reduce_op", "phase", "layer"), pl.String)
        kinds |= dict.fromkeys(("communicator", "root", "nranks"), pl.Int32)
        return pl.DataFrame(schema={name: kinds[name] for name in columns})
    points = points.with_columns(pl.lit(None, pl.String).alias("reduce_op"), pl.lit(None, pl.Int32).alias("root"))
    meet = pl.col("op") == "all-to-all"
    once = points.filter(meet).group_by(_KEYS).agg(pl.col("operations").max(), pl.col("records").sum())
    each = points.filter(~meet).group_by(_KEYS).agg(pl.col("operations", "records").sum())
    return pl.concat([once.select(columns), each.select(columns)])


def by_operation(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return per op: count, records, bytes and the exact histogram of sizes; largest byte total first."""
    import polars as pl

    sizes = frame.filter(pl.col("operations") > 0).group_by("op", "size_bytes").agg(pl.col("operations").sum())
    histogram: dict[str, list[dict[str, int]]] = {}
    for op, size, count in sizes.sort("op", "size_bytes", nulls_last=True).rows():
        histogram.setdefault(op, []).append({"size_bytes": size, "count": count})
    unsized = pl.col("operations").filter(pl.col("size_bytes").is_null()).sum().alias("unsized")
    totals = frame.group_by("op").agg(pl.col("operations", "records", "bytes").sum(), unsized)
    return [
        {
            "op": op,
            "count": count,
            "records": records,
            "bytes": None if unsized == count > 0 else total,
            "unsized": unsized,
            "size_histogram": histogram.get(op, []),
        }
        for op, count, records, total, unsized in totals.sort("bytes", "op", descending=[True, False]).rows()
    ]


def size_classes(operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the log2 histogram: a class holds sizes from its low bound up to, not including, its high bound."""
    classes: dict[tuple[str, int], list[int]] = {}
    for operation in operations:
        for line in operation["size_histogram"]:
            if line["size_bytes"] is None:
                continue
            size = line["size_bytes"]
            low = 1 << (size.bit_length() - 1) if size > 0 else 0
            entry = classes.setdefault((operation["op"], low), [0, 0])
            entry[0] += line["count"]
            entry[1] += line["count"] * size
    return [
        {"op": op, "log2_low_bytes": low, "log2_high_bytes": max(2 * low, 1), "count": count, "bytes": total}
        for (op, low), (count, total) in sorted(classes.items())
    ]


def shares(frame: pl.DataFrame, column: str) -> list[dict[str, Any]]:
    """Return count and bytes by ``column`` (role, phase) and op; rows without a value are left out."""
    import polars as pl

    if column not in frame.columns:
        return []
    kept = frame.filter(pl.col(column).is_not_null())
    some = pl.when(pl.col("size_bytes").is_not_null().any()).then(pl.col("bytes").sum())
    grouped = kept.group_by(column, "op").agg(pl.col("operations").sum(), some.alias("bytes"))
    return [
        {column: value, "op": op, "count": count, "bytes": total}
        for value, op, count, total in grouped.sort("bytes", column, "op", descending=[True, False, False]).rows()
    ]
