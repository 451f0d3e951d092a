"""Rows of several sources that are one call become one row; each value's source is kept, and contradictions are claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.ground.trace_tables import EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from ringwright.ground.trace_tables import Row

_KEYS = ("kind", "communicator", "turn", "rank", "op_class", "peer_class")
# Two sources must not differ here; elsewhere (threads, lines, times) they may well see different things.
COMPARED = ("op", "size_bytes", "datatype", "reduce_op", "root", "nranks", "algorithm", "protocol", "channels")
_OWN = ("source", "file", "line", "ground", "confidence", "records", "multiplicity", "text")
_EXAMPLES = 3


def merged(parts: Sequence[pl.DataFrame], claims: list[Row]) -> pl.DataFrame:
    """Return the calls of all parts, one row for calls that are the same; of two values that of the earlier part counts."""
    import polars as pl

    whole = pl.concat([_keyed(part, number) for number, part in enumerate(parts)])
    single = whole.filter(~pl.col("joins"))
    groups = whole.filter(pl.col("joins")).sort("part").group_by(*_KEYS, maintain_order=True)
    columns = [name for name in EVENTS if name not in _OWN and name not in _KEYS]
    joined = groups.agg(
        *(pl.col(name).drop_nulls().first() for name in columns),
        pl.col("source").drop_nulls().unique(maintain_order=True).str.join("+"),
        *(pl.col(name).drop_nulls().first() for name in ("file", "line", "ground", "text")),
        pl.col("confidence").max(),
        pl.col("records", "multiplicity").max(),
    )
    _contradictions(whole.filter(pl.col("joins")), claims)
    _origins(whole.filter(pl.col("joins")), claims)
    return pl.concat([single.select(*EVENTS), joined.select(*EVENTS)])


def _keyed(part: pl.DataFrame, number: int) -> pl.DataFrame:
    """Add what tells a call apart; only calls whose rank and sequence are known can be joined."""
    import polars as pl

    point = pl.col("kind") == "p2p"
    known = pl.all_horizontal(pl.col("communicator", "rank").is_not_null()) & (pl.col("sequence").is_not_null() | point)
    side = pl.when(point).then(pl.col("op")).otherwise(pl.lit("")).alias("op_class")
    peer = pl.when(point).then(pl.col("peer")).otherwise(None).alias("peer_class")
    keyed = part.with_columns(side, peer, pl.lit(number).alias("part"), known.alias("joins"))
    order = pl.int_range(pl.len()).over("kind", "communicator", "rank", "op_class", "peer_class")
    return keyed.with_columns(pl.when(point).then(order).otherwise(pl.col("sequence")).alias("turn"))


def _contradictions(calls: pl.DataFrame, claims: list[Row]) -> None:
    """Note per field how often sources differ, with examples."""
    import polars as pl

    for name in COMPARED:
        other = (pl.col(name) != "unknown") if name == "op" else pl.lit(value=True)
        seen = calls.filter(pl.col(name).is_not_null() & other).group_by(_KEYS)
        differ = seen.agg(pl.col(name).n_unique().alias("values"), pl.col(name).cast(pl.String), pl.col("source"))
        differ = differ.filter(pl.col("values") > 1).sort("communicator", "turn", "rank")
        for row in differ.head(_EXAMPLES).iter_rows(named=True):
            told = ", ".join(f"{source}: {value}" for source, value in zip(row["source"], row[name], strict=True))
            where = f"rank {row['rank']}, communicator {row['communicator']}, sequence {row['turn']}"
            claims.append(
                {
                    "field": name,
                    "value": told,
                    "source": "+".join(dict.fromkeys(row["source"])),
                    "ground": "contradiction",
                    "confidence": 0.5,
                    "note": f"{where}; {differ.height} calls differ so, the first named is kept",
                }
            )


def _origins(calls: pl.DataFrame, claims: list[Row]) -> None:
    """Note which source gave which field to the calls that were joined."""
    import polars as pl

    facts = [name for name in EVENTS if name not in _OWN and name not in _KEYS]
    counts = calls.group_by("source").agg(pl.len().alias("calls"), pl.col(facts).is_not_null().any()).sort("source")
    for row in counts.iter_rows(named=True):
        given = [name for name in facts if row[name]]
        claims.append(
            {
                "field": "fusion",
                "value": f"{row['calls']} calls",
                "source": row["source"],
                "ground": "read",
                "confidence": 1.0,
                "note": "gives " + ", ".join(given),
            }
        )
