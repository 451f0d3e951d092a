"""The collective records as events: folded (a row per communicator and signature) or one row each, sequence joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.nccl_log import dialect
from ringwright.formats.sources.nccl_log.communicator_export import Joined
from ringwright.formats.sources.nccl_log.fold import RecordSink
from ringwright.formats.sources.nccl_log.identity import JobIdentity
from ringwright.formats.sources.nccl_log.rows import RowMaker
from ringwright.formats.sources.nccl_log.state import LogState

if TYPE_CHECKING:
    import polars as pl

_HUGE_BYTES = 1 << 50  # beyond it a size is damage, not data


def event_rows(
    state: LogState, fold: RecordSink, ops: list[str], identity: JobIdentity, files: list[str]
) -> pl.LazyFrame:
    """Return the collective and point-to-point events: a row per record where rows were kept, else folded ones.

    Records spilled to disk are turned into events part by part, so memory stays bounded.
    """
    import polars as pl

    from ringwright.ground.trace_tables import rows

    if not fold.records:
        return rows("events", []).lazy()
    joined = Joined(fold, state, ops, identity)
    handles = _handle_frame(state, identity)
    if fold.rows is None and not fold.parts:
        return _events(joined.folded(), handles, state, ops, files).lazy()
    maker = RowMaker(joined)
    if fold.rows is not None:
        frames = [maker.rows(part) for part in fold.rows]
        return _events(pl.concat(frames), handles, state, ops, files).lazy()
    for part in fold.parts:
        raw = pl.read_parquet(part, glob=False)
        events = _events(maker.rows({name: raw[name].to_numpy() for name in raw.columns}), handles, state, ops, files)
        events.write_parquet(part)
    return pl.scan_parquet(fold.parts, glob=False)


def _events(
    frame: pl.DataFrame, handles: pl.DataFrame, state: LogState, ops: list[str], files: list[str]
) -> pl.DataFrame:
    import polars as pl

    from ringwright.ground.trace_tables import conform

    frame = frame.join(handles, on="handle", how="left", maintain_order="left") if "handle" in frame.columns else frame
    frame = _with_sizes(frame, state, ops)
    point = pl.col("op").is_in(sorted(dialect.POINT_TO_POINT))
    frame = frame.with_columns(
        pl.when(point).then(pl.lit("p2p")).otherwise(pl.lit("collective")).alias("kind"),
        pl.when(point).then(pl.col("root")).alias("peer"),
        pl.when(pl.col("op").is_in(sorted(dialect.ROOTED))).then(pl.col("root")).alias("root"),
        pl.lit("nccl-log").alias("source"),
        pl.lit("read").alias("ground"),
    )
    if "enqueue_s" in frame.columns:
        frame = frame.with_columns(pl.col("enqueue_s").fill_nan(None))
        clock = pl.when(pl.col("enqueue_s").is_not_null()).then(pl.lit("log"))
        frame = frame.with_columns(clock.alias("clock"))
    if "file" in frame.columns:
        frame = frame.with_columns(pl.col("file").replace_strict(dict(enumerate(files)), return_dtype=pl.String))
    drop = [name for name in ("handle", "datatype_id", "redop", "inplace", "entry") if name in frame.columns]
    return conform("events", frame.drop(drop))


def _handle_frame(state: LogState, identity: JobIdentity) -> pl.DataFrame:
    import polars as pl

    group_rank: dict[int, tuple[int | None, int | None]] = {}
    for number, group in enumerate(identity.groups):
        for rank, handles in group.handles.items():
            group_rank.update((index, (number, rank)) for index in handles)
        group_rank.update((index, (number, None)) for index in group.spare)
    records = []
    for handle in state.handles:
        true = state.handles[identity.alias.get(handle.index, handle.index)]
        where = group_rank.get(true.index, (None, None))
        records.append(
            {
                "handle": handle.index,
                "communicator": where[0],
                "comm_rank": where[1],
                "rank": identity.rank_of.get(true.index),
                "host": true.host,
                "pid": true.pid,
                "device": true.device,
                "nranks": true.nranks,
                "nnodes": true.nnodes,
            }
        )
    kinds = {"handle": pl.Int32, "communicator": pl.Int32, "comm_rank": pl.Int32, "rank": pl.Int32, "host": pl.String}
    kinds |= {"pid": pl.Int64, "device": pl.Int32, "nranks": pl.Int32, "nnodes": pl.Int32}
    return pl.DataFrame(records, schema=kinds)


def _with_sizes(frame: pl.DataFrame, state: LogState, ops: list[str]) -> pl.DataFrame:
    """Add op, datatype and the sizes in bytes from the printed numbers."""
    import polars as pl

    pairs = frame.select("op_id", "datatype_id").unique().rows()
    table = []
    for op_id, datatype in pairs:
        op = dialect.operation(ops[op_id])
        name, unit = dialect.element(op, datatype, state.version)
        row = {"op_id": op_id, "datatype_id": datatype, "op": op, "datatype": name, "element_bytes": unit}
        table.append(row | {"per_rank": op in dialect.PER_RANK_COUNT})
    kinds: dict[str, Any] = {
        "op_id": frame.schema["op_id"],
        "datatype_id": frame.schema["datatype_id"],
        "op": pl.String,
    }
    kinds |= {"datatype": pl.String, "element_bytes": pl.Int32, "per_rank": pl.Boolean}
    frame = frame.join(
        pl.DataFrame(table, schema=kinds), on=["op_id", "datatype_id"], how="left", maintain_order="left"
    )
    frame = _possible(frame, state)
    printed = pl.col("count").cast(pl.Int64) * pl.col("element_bytes")
    size = printed * pl.when("per_rank").then(pl.col("nranks").clip(1)).otherwise(1)
    share = pl.when(pl.col("op").is_in(["all-gather", "gather"])).then(printed).otherwise(size)
    got = pl.when(pl.col("op").is_in(["reduce-scatter", "scatter"])).then(printed).otherwise(size)
    reduces = pl.col("op").is_in(sorted(dialect.REDUCING))
    names = dict(dialect.REDUCE_OPS.items())
    return frame.with_columns(
        size.alias("size_bytes"),
        share.alias("sent_bytes"),
        got.alias("received_bytes"),
        pl.col("count").cast(pl.Int64),
        pl.when(reduces)
        .then(pl.col("redop").replace_strict(names, default="user", return_dtype=pl.String))
        .alias("reduce_op"),
    ).drop("op_id", "per_rank")


def _possible(frame: pl.DataFrame, state: LogState) -> pl.DataFrame:
    """Leave out records whose printed numbers no operation can have, and say how many."""
    import polars as pl

    amount = pl.col("count").cast(pl.Float64) * pl.col("element_bytes") * pl.col("nranks").clip(1)
    kept = frame.filter(amount < _HUGE_BYTES)
    lost = int(frame["records"].sum()) - int(kept["records"].sum())
    if lost:
        state.losses.append(f"{lost} records of impossible size left out")
    return kept


def time_bins(state: LogState, fold: RecordSink, ops: list[str]) -> list[dict[str, Any]]:
    """Return bytes asked for per second and operation, where lines carry a time; a group of one moves nothing.

    Each of a call's ranks counts its share; where ranks are missing that is too little, but never less than the largest call.
    """
    bins: dict[tuple[str, int], float] = {}
    largest: dict[tuple[str, int], float] = {}
    for (second, op_id, count, datatype, nranks), records in fold.time_bins.items():
        if nranks == 1:
            continue
        op = dialect.operation(ops[op_id])
        _, unit = dialect.element(op, datatype, state.version)
        size = float(dialect.size_bytes(op, count, unit, nranks))
        bins[op, second] = bins.get((op, second), 0.0) + size * records / max(nranks, 1)
        largest[op, second] = max(largest.get((op, second), 0.0), size)
    bins = {bin_number: max(amount, largest[bin_number]) for bin_number, amount in bins.items()}
    return [
        {"link": "operation", "src": op, "bin_start_s": float(second), "bin_s": 1.0, "bytes": amount}
        for (op, second), amount in sorted(bins.items(), key=lambda item: (item[0][1], item[0][0]))
    ]
