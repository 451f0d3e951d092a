"""From the plug-in's records to rows of a Trace: operations with their kernels, and what the proxies waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from ringwright.sources.nccl_profiler import clocks, records, sequence
from ringwright.sources.nccl_profiler.groups import Group, frame, members_frame

if TYPE_CHECKING:
    from ringwright.sources.nccl_profiler.file import Recorded

SOURCE = "nccl-profiler"
_OPS = {
    "AllReduce": "all-reduce",
    "AllGather": "all-gather",
    "AllGatherV": "all-gather",
    "ReduceScatter": "reduce-scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AlltoAll": "all-to-all",
    "AllToAll": "all-to-all",
    "Gather": "gather",
    "Scatter": "scatter",
    "SendRecv": "send-recv",
    "Send": "send",
    "Recv": "recv",
}
_TYPES = {
    **{"ncclInt8": ("int8", 1), "ncclUint8": ("uint8", 1), "ncclInt32": ("int32", 4), "ncclUint32": ("uint32", 4)},
    **{"ncclInt64": ("int64", 8), "ncclUint64": ("uint64", 8), "ncclFloat16": ("float16", 2), "ncclFloat32": ("float32", 4)},
    **{"ncclFloat64": ("float64", 8), "ncclBfloat16": ("bfloat16", 2), "ncclFloat8e4m3": ("float8_e4m3", 1)},
    "ncclFloat8e5m2": ("float8_e5m2", 1),
}
_REDUCTIONS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg"}
_KERNELS_FROM = 3  # the first interface that reports kernels


@dataclass
class Frames:
    """The rows, and what must be said about them."""

    events: list[pl.DataFrame] = field(default_factory=list)
    clocks: dict[int, clocks.GpuClock] = field(default_factory=dict)  # file -> clock
    bad_kernels: int = 0
    inferred_sequences: list[int] = field(default_factory=list)
    foreign_proxies: int = 0


def events_of(files: list[Recorded], groups: list[Group], origin_ns: int) -> Frames:
    """Return the rows of all files; times are seconds since ``origin_ns`` on the hosts' wall clocks."""
    made = Frames()
    members = members_frame(groups)
    operations = _operations(files, members)
    operations, made.inferred_sequences = _numbered(operations)
    kernels = _kernels(files, operations, made)
    proxies = _proxies(files, operations, members, made)
    spans = _spans(proxies)
    wall = pl.DataFrame(
        {
            "file": range(len(files)),
            "to_wall_ns": [f.real_ns - f.mono_ns - origin_ns for f in files],
            "file_name": [f.name for f in files],
            "host": [f.host for f in files],
            "process": [f.pid for f in files],
            "has_kernels": [bool(int(f.text.get("events", "0")) & 64) for f in files],
        },
        schema_overrides={"file": pl.Int32, "to_wall_ns": pl.Int64, "process": pl.Int64},
    )
    rows = operations.join(kernels, on=["file", "id"], how="left").join(spans, on=["file", "id"], how="left")
    rows = rows.join(wall, on="file", how="left")
    collectives = _collective_rows(rows)
    made.events = [collectives, *_status_rows(collectives), _proxy_rows(proxies.join(wall, on="file", how="left"))]
    steps = frame(files, records.STEP)
    if len(steps):
        made.events.append(_step_rows(steps.join(members, on=["file", "context"], how="left").join(wall, on="file")))
    return made


def _operations(files: list[Recorded], members: pl.DataFrame) -> pl.DataFrame:
    """Return collectives, sends and receives and copy-engine collectives with what their API calls add."""
    keep = ["file", "id", "context", "rank", "parent", "ns", "func", "datatype", "count"]
    i64, no_text = pl.lit(None, pl.Int64), pl.lit(None, pl.String)
    coll = frame(files, records.COLL).select(
        *keep, "seq", "algo", "proto", pl.col("root").cast(pl.Int32), pl.col("channels").cast(pl.Int32),
        pl.col("op").alias("reduction"), pl.lit(None, pl.Int32).alias("peer"), pl.lit("collective").alias("kind"),
        pl.col("func").alias("counter"), no_text.alias("text"),
    )  # fmt: skip
    p2p = frame(files, records.P2P).select(
        *keep, i64.alias("seq"), no_text.alias("algo"), no_text.alias("proto"), pl.lit(None, pl.Int32).alias("root"),
        pl.col("channels").cast(pl.Int32), pl.lit(-1, pl.Int32).alias("reduction"), "peer", pl.lit("p2p").alias("kind"),
        no_text.alias("counter"), no_text.alias("text"),
    )  # fmt: skip
    ce = frame(files, records.CE).select(
        *keep, "seq", pl.lit("copy-engine").alias("algo"), pl.col("sync").alias("proto"), "root",
        pl.lit(None, pl.Int32).alias("channels"), pl.lit(-1, pl.Int32).alias("reduction"),
        pl.lit(None, pl.Int32).alias("peer"), pl.lit("collective").alias("kind"), pl.lit("copy engine").alias("counter"),
        pl.concat_str(pl.lit('{"batches": '), "batches", pl.lit("}")).alias("text"),
    )  # fmt: skip
    calls = pl.concat(
        [
            frame(files, kind).select("file", pl.col("id").alias("parent"), pl.col("ns").alias("call_ns"), "stream", "captured")
            for kind in (records.COLL_API, records.P2P_API)
        ]
    ).unique(["file", "parent"], keep="first")
    every = pl.concat([coll, p2p, ce]).join(calls, on=["file", "parent"], how="left")
    told = members.select("file", "context", "communicator", "comm_rank", "global_rank", "nranks", "nnodes", "version")
    return every.join(told, on=["file", "context"], how="left").with_columns(
        pl.coalesce("comm_rank", "rank").alias("comm_rank"), pl.coalesce("call_ns", "ns").alias("enqueue_ns")
    )


def _numbered(operations: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    is_numbered = pl.col("counter").is_not_null() & pl.col("communicator").is_not_null()
    collectives, inferred = sequence.number(operations.filter(is_numbered))
    rest = operations.filter(~is_numbered).with_columns(pl.lit(None, pl.Int64).alias("sequence"))
    return pl.concat([collectives, rest.select(collectives.columns)]), inferred


def _kernels(files: list[Recorded], operations: pl.DataFrame, made: Frames) -> pl.DataFrame:
    """Return per operation when its kernel ran, over all channels, in the host's monotonic ns."""
    ends = frame(files, records.KERNEL_STOP).select(
        "file", "id", pl.col("ns").alias("seen_stop"), pl.col("gpu_ns").alias("gpu_stop")
    )
    kernels = (
        frame(files, records.KERNEL)
        .select("file", "id", "parent", pl.col("ns").alias("seen_start"), pl.col("gpu_ns").alias("gpu_start"))
        .join(ends.unique(["file", "id"]), on=["file", "id"], how="left")
    )
    is_torn = (pl.col("gpu_start") > 0) & (pl.col("gpu_stop") < pl.col("gpu_start"))  # NCCL's ring of timers has wrapped
    made.bad_kernels = kernels.filter(is_torn).height
    kernels = kernels.filter(is_torn.not_().fill_null(value=True)).with_columns(
        is_timed=(pl.col("gpu_start") > 0) & (pl.col("gpu_stop") > 0).fill_null(value=False)
    )
    kernels = _on_host(kernels, operations, made)
    return kernels.group_by("file", pl.col("parent").alias("id")).agg(
        pl.col("start_ns").min().alias("kernel_start"),
        pl.col("stop_ns").max().alias("kernel_stop"),
        pl.len().alias("kernel_channels"),
        pl.col("seen_stop").count().alias("kernel_ended"),
        pl.col("is_timed").all().alias("is_timed"),
    )


def _on_host(kernels: pl.DataFrame, operations: pl.DataFrame, made: Frames) -> pl.DataFrame:
    """Add ``start_ns`` and ``stop_ns``: GPU timers placed on the host's clock, else when the host saw them."""
    asked = operations.select("file", pl.col("id").alias("parent"), "ns")
    parts = []
    for (file,), part in kernels.join(asked, on=["file", "parent"], how="left").group_by("file", maintain_order=True):
        start, stop = pl.col("seen_start"), pl.col("seen_stop")
        pairs = part.filter(pl.col("is_timed") & pl.col("ns").is_not_null())
        if len(pairs):
            columns = (pairs[name].to_numpy() for name in ("ns", "gpu_start", "gpu_stop", "seen_start", "seen_stop"))
            clock = clocks.fit(*columns)
            made.clocks[int(str(file))] = clock
            placed = part.with_columns(
                pl.Series("host_start", clock.to_host(part["gpu_start"].to_numpy())),
                pl.Series("host_stop", clock.to_host(part["gpu_stop"].fill_null(0).to_numpy())),
            )
            start = pl.when("is_timed").then("host_start").otherwise("seen_start")
            stop = pl.when("is_timed").then("host_stop").otherwise("seen_stop")
            part = placed  # noqa: PLW2901
        parts.append(part.select("file", "parent", "seen_stop", "is_timed", start.alias("start_ns"), stop.alias("stop_ns")))
    if parts:
        return pl.concat(parts)
    return kernels.select("file", "parent", "seen_stop", "is_timed", start_ns="seen_start", stop_ns="seen_stop")


def _proxies(files: list[Recorded], operations: pl.DataFrame, members: pl.DataFrame, made: Frames) -> pl.DataFrame:
    """Return proxy operations with their waits and the operation they work for, also one of another process (PXN)."""
    ends = frame(files, records.PROXY_STOP)
    waits = [name for name in ends.columns if name.startswith("wait")]
    ends = ends.select("file", "id", pl.col("ns").alias("stop_ns"), pl.col("steps").alias("done_steps"), "bytes", *waits)
    proxies = frame(files, records.PROXY).join(ends.unique(["file", "id"]), on=["file", "id"], how="left")
    process = pl.DataFrame(
        {"owner": range(len(files)), "pid": [f.pid for f in files], "host": [f.host for f in files]},
        schema={"owner": pl.Int32, "pid": pl.Int32, "host": pl.String},
    ).unique(["pid", "host"], keep="none")
    here = pl.DataFrame(
        {"file": range(len(files)), "host": [f.host for f in files], "own_pid": [f.pid for f in files]},
        schema={"file": pl.Int32, "host": pl.String, "own_pid": pl.Int32},
    )
    proxies = proxies.join(here, on="file").join(process, on=["pid", "host"], how="left").drop("host")
    proxies = proxies.with_columns(pl.when(pl.col("pid") == pl.col("own_pid")).then("file").otherwise("owner").alias("owner"))
    made.foreign_proxies = proxies.filter(pl.col("pid") != pl.col("own_pid")).height
    parents = operations.select(
        pl.col("file").alias("owner"), pl.col("id").alias("parent"), "sequence", pl.col("kind").alias("parent_kind"), "func"
    )
    told = members.select("file", "context", "communicator", "comm_rank", "global_rank", "nranks")
    return proxies.join(parents, on=["owner", "parent"], how="left").join(told, on=["file", "context"], how="left")


def _spans(proxies: pl.DataFrame) -> pl.DataFrame:
    """Return per operation when its proxies were at work: the best interval where no kernel was seen."""
    return (
        proxies.filter(pl.col("stop_ns").is_not_null() & (pl.col("owner") == pl.col("file")))
        .group_by("file", pl.col("parent").alias("id"))
        .agg(pl.col("ns").min().alias("proxy_start"), pl.col("stop_ns").max().alias("proxy_stop"))
    )


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


def _collective_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of ``events`` for operations."""
    element = pl.col("datatype").replace_strict({k: v[1] for k, v in _TYPES.items()}, default=None, return_dtype=pl.Int64)
    op = pl.col("func").replace_strict(_OPS, default="unknown", return_dtype=pl.String)
    total = pl.col("count").cast(pl.Int64) * element
    per_rank = op.is_in(["all-gather", "reduce-scatter", "all-to-all"])
    size = pl.when(per_rank).then(total * pl.col("nranks")).otherwise(total)
    is_root = pl.col("root") == pl.col("comm_rank")
    sent = pl.when(op == "all-gather").then(total).when((op == "broadcast") & ~is_root).then(0).when(op == "recv").then(0)
    received = pl.when(op == "reduce-scatter").then(total).when((op == "reduce") & ~is_root).then(0).when(op == "send").then(0)
    has_kernel = pl.col("kernel_start").is_not_null()
    start = pl.coalesce("kernel_start", "proxy_start")
    stop = pl.when(has_kernel & (pl.col("kernel_ended") == pl.col("kernel_channels"))).then("kernel_stop")
    stop = stop.when(~has_kernel).then("proxy_stop")
    known = pl.col("has_kernels") & (pl.col("version") >= _KERNELS_FROM) & pl.col("counter").ne_missing("copy engine")
    state = pl.when(~known).then(None).when(stop.is_not_null() & has_kernel).then(pl.lit("completed"))
    clock = pl.when(has_kernel & pl.col("is_timed")).then(pl.format("gpu:{}", "global_rank"))
    return rows.select(
        *_origin(),
        *("kind", "communicator", "comm_rank", "nranks", "nnodes", "sequence", "host", "root", "channels", "peer", "text"),
        op.alias("op"),
        pl.col("seq").alias("op_count"),
        pl.col("count").cast(pl.Int64),
        pl.col("datatype").replace_strict({k: v[0] for k, v in _TYPES.items()}, default=pl.col("datatype"), return_dtype=pl.String),
        element.cast(pl.Int32).alias("element_bytes"),
        size.alias("size_bytes"),
        sent.otherwise(size).alias("sent_bytes"),
        received.otherwise(size).alias("received_bytes"),
        pl.col("reduction").replace_strict(_REDUCTIONS, default=None, return_dtype=pl.String).alias("reduce_op"),
        pl.col("algo").str.to_lowercase().alias("algorithm"),
        pl.col("proto").str.to_lowercase().alias("protocol"),
        pl.format("0x{}", pl.col("stream").map_elements(lambda v: f"{v:x}", return_dtype=pl.String)).alias("stream"),
        pl.col("captured").cast(pl.Boolean).alias("graph_captured"),
        _seconds("enqueue_ns").alias("enqueue_s"),
        (start + pl.col("to_wall_ns")).truediv(1e9).alias("start_s"),
        ((stop.otherwise(None) - start) / 1e9).alias("duration_s"),
        clock.otherwise(pl.format("host:{}", "host")).alias("clock"),
        state.when(has_kernel).then(pl.lit("started")).otherwise(pl.lit("scheduled")).alias("state"),
        pl.when(has_kernel).then(pl.lit("nccl")).alias("kernel_class"),
        pl.when(has_kernel | start.is_null()).then(pl.lit("read")).otherwise(pl.lit("inferred")).alias("ground"),
    )


def _status_rows(collectives: pl.DataFrame) -> list[pl.DataFrame]:
    """Return how far each rank came in each communicator, where kernels were watched."""
    known = collectives.filter((pl.col("kind") == "collective") & pl.col("state").is_not_null() & pl.col("rank").is_not_null())
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


def _proxy_rows(proxies: pl.DataFrame) -> pl.DataFrame:
    """Return one row per proxy operation: who it waited for, and for how long."""
    network, peer = pl.col("wait3") + pl.col("wait4"), pl.col("wait2")
    gpu, flush = pl.col("wait1") + pl.col("wait6"), pl.col("wait5")
    waits = {"network-wait": network, "gpu-wait": gpu, "peer-wait": peer, "flush-wait": flush}
    longest = pl.max_horizontal(*waits.values())
    state = pl.when(pl.col("stop_ns").is_null()).then(pl.lit("started")).when(longest == 0).then(pl.lit("completed"))
    for name, wait in waits.items():
        state = state.when(wait == longest).then(pl.lit(name))
    parts = [pl.concat_str(pl.lit(f'"{name.replace("-", "_")}_s": '), (wait / 1e9).cast(pl.String)) for name, wait in waits.items()]
    facts = [
        pl.concat_str(pl.lit(f'"{name}": '), pl.col(column).cast(pl.Int64).cast(pl.String))
        for name, column in (("channel", "channel"), ("steps", "done_steps"), ("of_steps", "steps"), ("chunk_bytes", "chunk_bytes"))
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
        state.otherwise(None).alias("state"),
        (network / 1e9).alias("value"),
        pl.concat_str(pl.lit("{"), pl.concat_str(*facts, *parts, separator=", ", ignore_nulls=True), pl.lit("}")).alias("text"),
        pl.when(pl.col("parent_kind").is_null()).then(pl.lit("inferred")).otherwise(pl.lit("read")).alias("ground"),
    )


def _step_rows(steps: pl.DataFrame) -> pl.DataFrame:
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
