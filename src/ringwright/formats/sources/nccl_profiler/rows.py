"""The rows of a Trace: one for each operation, proxy operation and step, and how far each rank came."""

from __future__ import annotations

import polars as pl

from ringwright.costs.nccl.names import printed_algorithm, printed_protocol
from ringwright.formats.sources.nccl_functions import OPS
from ringwright.ground.units import MOST_BYTES

SOURCE = "nccl-profiler"
_TYPES = {
    f"nccl{name.capitalize()}": (name, size)
    for name, size in (
        *(("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8)),
        *(("float16", 2), ("bfloat16", 2), ("float32", 4), ("float64", 8), ("float8e4m3", 1), ("float8e5m2", 1)),
    )
}
_REDUCTIONS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg"}
_KERNELS_FROM = 3  # the first interface that reports kernels


def _seconds(column: str) -> pl.Expr:
    return (pl.col(column) + pl.col("to_wall_ns")) / 1e9


def _origin() -> list[pl.Expr]:
    return [
        pl.col("global_rank").alias("rank"),
        pl.col("file_name").alias("file"),
        pl.col("process").alias("pid"),
        pl.lit(SOURCE).alias("source"),
        pl.lit(1, pl.Int64).alias("multiplicity"),
        pl.lit(1, pl.Int64).alias("records"),
        pl.lit(1.0).alias("confidence"),
    ]


# long: one expression of the frame for each column
def operation_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of ``events`` for operations."""
    element = pl.col("datatype").replace_strict(
        {k: v[1] for k, v in _TYPES.items()}, default=None, return_dtype=pl.Int64
    )
    op = pl.col("func").replace_strict(OPS, default="unknown", return_dtype=pl.String)
    total = pl.col("count").cast(pl.Int64) * element
    per_rank = op.is_in(["all-gather", "reduce-scatter", "all-to-all"])
    times = pl.when(per_rank).then(pl.col("nranks")).otherwise(1)
    size = pl.when(total.cast(pl.Float64) * times <= MOST_BYTES).then(total * times)
    is_root = pl.col("root") == pl.col("comm_rank")
    sent = (
        pl.when(op == "all-gather").then(total).when((op == "broadcast") & ~is_root).then(0).when(op == "recv").then(0)
    )
    received = (
        pl.when(op == "reduce-scatter").then(total).when((op == "reduce") & ~is_root).then(0).when(op == "send").then(0)
    )
    has_kernel = pl.col("kernel_start").is_not_null()
    start = pl.coalesce("kernel_start", "proxy_start")
    whole = has_kernel & (pl.col("kernel_ended") == pl.col("kernel_channels"))
    stop = pl.when(whole).then("kernel_stop").when(~has_kernel).then("proxy_stop").otherwise(None)
    known = pl.col("has_kernels") & (pl.col("version") >= _KERNELS_FROM) & pl.col("counter").ne_missing("copy engine")
    state = pl.when(~known).then(None).when(stop.is_not_null() & has_kernel).then(pl.lit("completed"))
    clock = pl.when(has_kernel & pl.col("is_timed")).then(pl.format("gpu:{}", "global_rank"))
    return rows.select(
        *_origin(),
        *(
            "kind",
            "communicator",
            "comm_rank",
            "nranks",
            "nnodes",
            "sequence",
            "host",
            "root",
            "channels",
            "peer",
            "text",
        ),
        op.alias("op"),
        pl.col("seq").alias("op_count"),
        pl.col("count").cast(pl.Int64),
        pl.col("datatype").replace_strict(
            {k: v[0] for k, v in _TYPES.items()}, default=pl.col("datatype"), return_dtype=pl.String
        ),
        element.cast(pl.Int32).alias("element_bytes"),
        size.alias("size_bytes"),
        sent.otherwise(size).alias("sent_bytes"),
        received.otherwise(size).alias("received_bytes"),
        pl.col("reduction").replace_strict(_REDUCTIONS, default=None, return_dtype=pl.String).alias("reduce_op"),
        pl.col("algo").map_elements(printed_algorithm, return_dtype=pl.String).alias("algorithm"),
        pl.col("proto").map_elements(printed_protocol, return_dtype=pl.String).alias("protocol"),
        pl.format("0x{}", pl.col("stream").map_elements(lambda v: f"{v:x}", return_dtype=pl.String)).alias("stream"),
        pl.col("captured").cast(pl.Boolean).alias("graph_captured"),
        _seconds("enqueue_ns").alias("enqueue_s"),
        (start + pl.col("to_wall_ns")).truediv(1e9).alias("start_s"),
        ((stop - start) / 1e9).alias("duration_s"),
        clock.otherwise(pl.format("host:{}", "host")).alias("clock"),
        state.when(has_kernel).then(pl.lit("started")).otherwise(pl.lit("scheduled")).alias("state"),
        pl.when(has_kernel).then(pl.lit("nccl")).alias("kernel_class"),
        pl.when(has_kernel | start.is_null()).then(pl.lit("read")).otherwise(pl.lit("inferred")).alias("ground"),
    )


def status_rows(collectives: pl.DataFrame) -> list[pl.DataFrame]:
    """Return how far each rank came in each communicator, where kernels were watched."""
    known = collectives.filter(
        (pl.col("kind") == "collective") & pl.col("state").is_not_null() & pl.col("rank").is_not_null()
    )
    reached = {
        "last-enqueued": pl.lit(value=True),
        "last-started": pl.col("state").is_in(["started", "completed"]),
        "last-completed": pl.col("state") == "completed",
    }
    return [
        known.filter(condition)
        .group_by("file", "rank", "communicator")
        .agg(pl.col("sequence").max(), pl.col("host", "pid", "comm_rank").first())
        .with_columns(kind=pl.lit("status"), op=pl.lit(name), source=pl.lit(SOURCE), ground=pl.lit("read"))
        for name, condition in reached.items()
    ]


def proxy_rows(proxies: pl.DataFrame) -> pl.DataFrame:
    """Return one row per proxy operation: who it waited for, and for how long."""
    network, peer = pl.col("wait3") + pl.col("wait4"), pl.col("wait2")
    gpu, flush = pl.col("wait1") + pl.col("wait6"), pl.col("wait5")
    waits = {"network-wait": network, "gpu-wait": gpu, "peer-wait": peer, "flush-wait": flush}
    longest = pl.max_horizontal(*waits.values())
    named = pl.coalesce(*(pl.when(wait == longest).then(pl.lit(name)) for name, wait in waits.items()))
    state = pl.when(pl.col("stop_ns").is_null()).then(pl.lit("started")).when(longest == 0).then(pl.lit("completed"))
    parts = [
        pl.concat_str(pl.lit(f'"{name.replace("-", "_")}_s": '), (wait / 1e9).cast(pl.String))
        for name, wait in waits.items()
    ]
    facts = [
        pl.concat_str(pl.lit(f'"{name}": '), pl.col(column).cast(pl.Int64).cast(pl.String))
        for name, column in (
            ("channel", "channel"),
            ("steps", "done_steps"),
            ("of_steps", "steps"),
            ("chunk_bytes", "chunk_bytes"),
        )
    ]
    is_send, size = pl.col("is_send") == 1, pl.col("bytes").cast(pl.Int64)
    return proxies.select(
        *_origin(),
        pl.lit("proxy").alias("kind"),
        pl.when(is_send).then(pl.lit("send")).otherwise(pl.lit("recv")).alias("op"),
        *("communicator", "nranks", "sequence", "peer", "host"),
        pl.col("rank").alias("comm_rank"),
        pl.col("func").alias("task"),
        size.alias("size_bytes"),
        pl.when(is_send).then(size).otherwise(0).alias("sent_bytes"),
        pl.when(is_send).then(0).otherwise(size).alias("received_bytes"),
        _seconds("ns").alias("start_s"),
        ((pl.col("stop_ns") - pl.col("ns")) / 1e9).alias("duration_s"),
        pl.format("host:{}", "host").alias("clock"),
        state.otherwise(named).alias("state"),
        (network / 1e9).alias("value"),
        pl.concat_str(pl.lit("{"), pl.concat_str(*facts, *parts, separator=", ", ignore_nulls=True), pl.lit("}")).alias(
            "text"
        ),
        pl.when(pl.col("parent_kind").is_null()).then(pl.lit("inferred")).otherwise(pl.lit("read")).alias("ground"),
    )


def step_rows(steps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per step of a proxy, where steps were asked for."""
    return steps.select(
        *_origin(),
        pl.lit("proxy").alias("kind"),
        pl.lit("step").alias("op"),
        *("communicator", "comm_rank", "nranks", "host"),
        pl.col("step").cast(pl.Int64).alias("op_count"),
        pl.col("bytes").cast(pl.Int64).alias("size_bytes"),
        _seconds("ns").alias("start_s"),
        ((pl.col("stop_ns") - pl.col("ns")) / 1e9).alias("duration_s"),
        pl.format("host:{}", "host").alias("clock"),
        ((pl.col("wait3") + pl.col("wait4")) / 1e9).alias("value"),
        pl.lit("read").alias("ground"),
    )
