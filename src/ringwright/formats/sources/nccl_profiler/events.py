"""From the plug-in's records to rows of a Trace: operations with their kernels, and what the proxies waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from ringwright.formats.sources.nccl_profiler import clocks, records, rows, sequence
from ringwright.formats.sources.nccl_profiler.groups import ProfilerCommunicator, frame, members_frame

if TYPE_CHECKING:
    from ringwright.formats.sources.nccl_profiler.file import ProfilerFile

_LONG_BEFORE_NS = 10**12


@dataclass
class Frames:
    """The rows, and what must be said about them."""

    events: list[pl.DataFrame] = field(default_factory=list)
    clocks: dict[tuple[int, int], clocks.GpuClock] = field(default_factory=dict)  # file and rank -> clock
    bad_kernels: int = 0
    inferred_sequences: list[int] = field(default_factory=list)
    foreign_proxies: int = 0


def events_of(files: list[ProfilerFile], groups: list[ProfilerCommunicator], origin_ns: int) -> Frames:
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
            "has_kernels": [bool((f.number("events") or 0) & 64) for f in files],
        },
        schema_overrides={"file": pl.Int32, "to_wall_ns": pl.Int64, "process": pl.Int64},
    )
    joined = operations.join(kernels, on=["file", "id"], how="left").join(spans, on=["file", "id"], how="left")
    joined = joined.join(wall, on="file", how="left")
    collectives = rows.operation_rows(joined)
    made.events = [
        collectives,
        *rows.status_rows(collectives),
        rows.proxy_rows(proxies.join(wall, on="file", how="left")),
    ]
    steps = frame(files, records.STEP)
    if len(steps):
        made.events.append(
            rows.step_rows(
                steps.join(_once(members, "file", "context"), on=["file", "context"], how="left").join(wall, on="file")
            )
        )
    return made


# long: one expression of the frame for each column
def _operations(files: list[ProfilerFile], members: pl.DataFrame) -> pl.DataFrame:
    """Return collectives, sends and receives and copy-engine collectives with what their API calls add."""
    keep = ["file", "id", "context", "rank", "parent", "ns", "func", "datatype", "count"]
    i64, no_text = pl.lit(None, pl.Int64), pl.lit(None, pl.String)
    coll = frame(files, records.COLL).select(
        *keep,
        "seq",
        "algo",
        "proto",
        pl.col("root").cast(pl.Int32),
        pl.col("channels").cast(pl.Int32),
        pl.col("op").alias("reduction"),
        pl.lit(None, pl.Int32).alias("peer"),
        pl.lit("collective").alias("kind"),
        pl.col("func").alias("counter"),
        no_text.alias("text"),
    )
    p2p = frame(files, records.P2P).select(
        *keep,
        i64.alias("seq"),
        no_text.alias("algo"),
        no_text.alias("proto"),
        pl.lit(None, pl.Int32).alias("root"),
        pl.col("channels").cast(pl.Int32),
        pl.lit(-1, pl.Int32).alias("reduction"),
        "peer",
        pl.lit("p2p").alias("kind"),
        no_text.alias("counter"),
        no_text.alias("text"),
    )
    ce = frame(files, records.CE).select(
        *keep,
        "seq",
        pl.lit("copy-engine").alias("algo"),
        pl.col("sync").alias("proto"),
        "root",
        pl.lit(None, pl.Int32).alias("channels"),
        pl.lit(-1, pl.Int32).alias("reduction"),
        pl.lit(None, pl.Int32).alias("peer"),
        pl.lit("collective").alias("kind"),
        pl.lit("copy engine").alias("counter"),
        pl.concat_str(pl.lit('{"batches": '), "batches", pl.lit("}")).alias("text"),
    )
    calls = pl.concat(
        [
            frame(files, kind).select(
                "file", pl.col("id").alias("parent"), pl.col("ns").alias("call_ns"), "stream", "captured"
            )
            for kind in (records.COLL_API, records.P2P_API)
        ]
    ).unique(["file", "parent"], keep="first")
    every = pl.concat([coll, p2p, ce]).join(calls, on=["file", "parent"], how="left")
    told = members.select("file", "context", "communicator", "comm_rank", "global_rank", "nranks", "nnodes", "version")
    told = _once(told, "file", "context")
    return every.join(told, on=["file", "context"], how="left").with_columns(
        pl.coalesce("comm_rank", "rank").alias("comm_rank"), pl.coalesce("call_ns", "ns").alias("enqueue_ns")
    )


def _numbered(operations: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    is_numbered = pl.col("counter").is_not_null() & pl.col("communicator").is_not_null()
    collectives, inferred = sequence.number(operations.filter(is_numbered))
    rest = operations.filter(~is_numbered).with_columns(pl.lit(None, pl.Int64).alias("sequence"))
    return pl.concat([collectives, rest.select(collectives.columns)]), inferred


def _kernels(files: list[ProfilerFile], operations: pl.DataFrame, made: Frames) -> pl.DataFrame:
    """Return per operation when its kernel ran, over all channels, in the host's monotonic ns."""
    ends = frame(files, records.KERNEL_STOP).select(
        "file", "id", pl.col("ns").alias("seen_stop"), pl.col("gpu_ns").alias("gpu_stop")
    )
    kernels = (
        frame(files, records.KERNEL)
        .select("file", "id", "parent", pl.col("ns").alias("seen_start"), pl.col("gpu_ns").alias("gpu_start"))
        .join(ends.unique(["file", "id"]), on=["file", "id"], how="left")
    )
    is_torn = (pl.col("gpu_start") > 0) & (
        pl.col("gpu_stop") < pl.col("gpu_start")
    )  # NCCL's ring of timers has wrapped
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
    """Add ``start_ns`` and ``stop_ns``: GPU timers placed on the host's clock, else when the host saw them.

    A process may drive several GPUs, each with a clock of its own: a rank is a GPU.
    """
    # What a graph replays is reported when it may be running already: it says nothing of how late the GPU's clock can be.
    asked = pl.when(pl.col("captured") == 1).then(pl.col("ns") - _LONG_BEFORE_NS).otherwise("ns")
    gpu = pl.coalesce("global_rank", -1 - pl.col("context").cast(pl.Int32))
    of = operations.select("file", pl.col("id").alias("parent"), asked.alias("asked"), gpu.alias("gpu"))
    parts = []
    of = _once(of, "file", "parent")
    for (file, number), part in kernels.join(of, on=["file", "parent"], how="left").group_by("file", "gpu"):
        start, stop = pl.col("seen_start"), pl.col("seen_stop")
        pairs = part.filter(pl.col("is_timed") & pl.col("asked").is_not_null())
        if len(pairs):
            names = ("asked", "gpu_start", "gpu_stop", "seen_start", "seen_stop")
            clock = clocks.fit(*(pairs[name].to_numpy() for name in names))
            made.clocks[int(str(file)), int(str(number))] = clock
            start = pl.when("is_timed").then(pl.Series(clock.to_host(part["gpu_start"].to_numpy()))).otherwise(start)
            stop = (
                pl.when("is_timed")
                .then(pl.Series(clock.to_host(part["gpu_stop"].fill_null(0).to_numpy())))
                .otherwise(stop)
            )
        keep = ("file", "parent", "seen_stop", "is_timed")
        parts.append(part.select(*keep, start.alias("start_ns"), stop.alias("stop_ns")))
    if parts:
        return pl.concat(parts)
    return kernels.select("file", "parent", "seen_stop", "is_timed", start_ns="seen_start", stop_ns="seen_stop")


def _proxies(files: list[ProfilerFile], operations: pl.DataFrame, members: pl.DataFrame, made: Frames) -> pl.DataFrame:
    """Return proxy operations with their waits and the operation they work for, also one of another process (PXN)."""
    ends = frame(files, records.PROXY_STOP)
    waits = [name for name in ends.columns if name.startswith("wait")]
    ends = ends.select(
        "file", "id", pl.col("ns").alias("stop_ns"), pl.col("steps").alias("done_steps"), "bytes", *waits
    )
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
    proxies = proxies.with_columns(
        pl.when(pl.col("pid") == pl.col("own_pid")).then("file").otherwise("owner").alias("owner")
    )
    made.foreign_proxies = proxies.filter(pl.col("pid") != pl.col("own_pid")).height
    parents = operations.select(
        pl.col("file").alias("owner"),
        pl.col("id").alias("parent"),
        "sequence",
        pl.col("kind").alias("parent_kind"),
        "func",
    )
    told = members.select("file", "context", "communicator", "comm_rank", "global_rank", "nranks")
    parents, told = _once(parents, "owner", "parent"), _once(told, "file", "context")
    return proxies.join(parents, on=["owner", "parent"], how="left").join(told, on=["file", "context"], how="left")


def _once(frame: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Return the first row of each key: in a file that is damaged, or there twice, a number may come again and again."""
    return frame.unique([*key], keep="first", maintain_order=True)


def _spans(proxies: pl.DataFrame) -> pl.DataFrame:
    """Return per operation when its proxies were at work: the best interval where no kernel was seen."""
    return (
        proxies.filter(pl.col("stop_ns").is_not_null() & (pl.col("owner") == pl.col("file")))
        .group_by("file", pl.col("parent").alias("id"))
        .agg(pl.col("ns").min().alias("proxy_start"), pl.col("stop_ns").max().alias("proxy_stop"))
    )
