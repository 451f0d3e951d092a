"""Who sends how much to whom in each call, from the edges of its algorithm: one row for each call of a rank and receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringwright.analysis import pairs
from ringwright.costs import traffic

if TYPE_CHECKING:
    import polars as pl

    from ringwright.analysis.pairs import Paths
    from ringwright.model.trace import Trace

MOST_RECEIVERS = 256  # of one rank's call; with more, the call is one transfer to nobody in particular
_KEY = ("communicator", "op", "root", "algorithm", "comm_rank")
# Of a million transfers every column more is some ten megabytes, several times over.
_CARRIED = (
    *("communicator", "src", "dst", "rank", "rank_class", "share"),
    *("enqueue_s", "start_s", "duration_s", "phase", "iteration"),
)
_RING = "a ring, for the algorithm that ran was not read"
_OPS = sorted(pairs.RING_OPS | pairs.DIRECT_OPS)


def call_edges(calls: pl.DataFrame, trace: Trace, paths: Mapping[int, Paths]) -> tuple[pl.DataFrame, str]:
    """Return the transfers of ``calls``, and what was assumed of their algorithms, empty where it was read.

    Rows have the times, phase and iteration of a call, ``src`` and ``dst`` (ranks of the communicator), ``src_rank`` and
    ``dst_rank`` (global), ``label`` (of a sender that is no known rank) and ``share``, bytes, null where they are not known.
    """
    import polars as pl

    calls = _with_ranks(_with_algorithms(calls, trace), paths)
    is_collective = pl.col("kind") == "collective"
    collectives, points = calls.filter(is_collective), calls.filter(~is_collective)
    units, names = _units(collectives, paths)
    by_edges = pl.col("comm_rank").is_not_null() & pl.struct("communicator", "op").is_in(
        units.select(pl.struct("communicator", "op")).to_series().unique().implode()
    )
    followed = collectives.filter(by_edges).join(units, on=_KEY)
    followed = followed.with_columns(src=pl.col("comm_rank"), share=pl.col("size_bytes") * pl.col("unit"))
    parts = [followed, _in_the_mean(collectives.filter(~by_edges), paths), _points(points)]
    frame = pl.concat(part.select(_CARRIED) for part in parts)
    frame = frame.filter(pl.col("share").is_null() | (pl.col("share") > 0))
    return _with_ends(frame, paths), _RING if pairs.ASSUMED in names else ""


def _with_algorithms(calls: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return the calls with the algorithm that the source names, empty where it names none, and a root."""
    import polars as pl

    rows = [(*key, name) for key, name in pairs.chosen_algorithms(trace).items()]
    chosen = pl.DataFrame(rows, schema={"op": pl.String, "size_bytes": pl.Int64, "algorithm": pl.String}, orient="row")
    named = calls.join(chosen, on=["op", "size_bytes"], how="left")
    return named.with_columns(pl.col("algorithm").fill_null(""), pl.col("root").fill_null(0))


def _with_ranks(calls: pl.DataFrame, paths: Mapping[int, Paths]) -> pl.DataFrame:
    """Return the calls with the rank in the communicator, where the source gives the global one alone."""
    import polars as pl

    members = _members(paths).rename({"member": "position", "global": "rank"})
    told = calls.join(members, on=["communicator", "rank"], how="left")
    return told.with_columns(pl.coalesce("comm_rank", "position").alias("comm_rank")).drop("position")


def _members(paths: Mapping[int, Paths]) -> pl.DataFrame:
    import polars as pl

    rows = [
        (number, position, rank)
        for number, path in paths.items()
        for position, rank in enumerate(path.members)
        if rank >= 0
    ]
    schema = {"communicator": pl.Int32, "member": pl.Int32, "global": pl.Int32}
    return pl.DataFrame(rows, schema=schema, orient="row").unique(["communicator", "global"], keep="first")


def _units(collectives: pl.DataFrame, paths: Mapping[int, Paths]) -> tuple[pl.DataFrame, set[str]]:
    """Return what one byte of a call is on each edge, and by which algorithms: bytes of edges go with the size."""
    import polars as pl

    rows: list[tuple[int, str, int, str, int, int, float]] = []
    names: set[str] = set()
    keys = collectives.filter(pl.col("op").is_in(_OPS)).select(_KEY[:-1]).unique().sort(_KEY[:-1], nulls_last=True)
    for number, op, root, algorithm in keys.rows():
        path = paths.get(number)
        most = MOST_RECEIVERS if op in pairs.DIRECT_OPS else pairs.MAX_ASSUMED_RANKS
        if path is None or not 1 < path.size <= most:
            continue
        edges, name = pairs.edges_of(path, op, root, algorithm, 1.0)
        names.add(name)
        rows += [(number, op, root, algorithm, src, dst, unit) for (src, dst), unit in edges.items()]
    schema = {"communicator": pl.Int32, "op": pl.String, "root": pl.Int32, "algorithm": pl.String}
    ends = {"comm_rank": pl.Int32, "dst": pl.Int32, "unit": pl.Float64}
    return pl.DataFrame(rows, schema={**schema, **ends}, orient="row"), names


def _in_the_mean(calls: pl.DataFrame, paths: Mapping[int, Paths]) -> pl.DataFrame:
    """Return calls of no known rank, or of many receivers, with what a rank of their group sends in the mean."""
    import polars as pl

    sizes = pl.DataFrame(
        [(number, path.size) for number, path in paths.items()],
        schema={"communicator": pl.Int32, "size": pl.Int32},
        orient="row",
    )
    calls = calls.join(sizes, on="communicator", how="left").with_columns(pl.coalesce("size", "nranks").alias("size"))
    keys = calls.select("op", "size").unique().sort("op", "size", nulls_last=True).rows()
    units = [(op, p, traffic.sent_total(op, 1.0, p) / p) for op, p in keys if p and op in _OPS]
    unit = pl.DataFrame(units, schema={"op": pl.String, "size": pl.Int32, "unit": pl.Float64}, orient="row")
    told = calls.join(unit, on=["op", "size"], how="left")
    nobody = pl.lit(None, pl.Int32)
    return told.with_columns(src=pl.col("comm_rank"), dst=nobody, share=pl.col("size_bytes") * pl.col("unit"))


def _points(points: pl.DataFrame) -> pl.DataFrame:
    """Return messages between two ranks: sends, and receives of what no send was recorded of."""
    import polars as pl

    comes = pl.col("op") == "recv"
    ends = points.with_columns(
        src=pl.when(comes).then("peer").otherwise("comm_rank"),
        dst=pl.when(comes).then("comm_rank").otherwise("peer"),
        share=pl.col("size_bytes").cast(pl.Float64),
    )
    sent = ends.filter(~comes).select("communicator", "src", "dst").unique()
    received = ends.filter(comes).join(sent, on=["communicator", "src", "dst"], how="anti")
    # Who receives is the rank that wrote the record; who sends is its peer, whom no column but that names.
    received = received.with_columns(rank=pl.lit(None, pl.Int32), rank_class=pl.lit(None, pl.String))
    return pl.concat([ends.filter(~comes), received])


def _with_ends(frame: pl.DataFrame, paths: Mapping[int, Paths]) -> pl.DataFrame:
    """Return transfers with the global ranks of both ends, and a label of a sender without one."""
    import polars as pl

    members = _members(paths)
    for end in ("src", "dst"):
        named = members.rename({"member": end, "global": f"{end}_global"})
        frame = frame.join(named, on=["communicator", end], how="left")
    group = pl.format("communicator {}", pl.col("communicator").cast(pl.String).fill_null("unknown"))
    nameless = pl.format("{} rank {}", group, pl.col("src").cast(pl.String).fill_null("unknown"))
    return frame.with_columns(
        src_rank=pl.coalesce("rank", "src_global"),
        dst_rank=pl.col("dst_global"),
        label=pl.coalesce("rank_class", nameless),
    )
