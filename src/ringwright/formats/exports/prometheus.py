"""Collectives as a Prometheus textfile, under the metric and label names of NCCL Inspector's exporter.

``nccl_bus_bandwidth_gbs`` and ``nccl_collective_exec_time_microseconds`` are means over a Trace's timed collectives, weighted
by how many equal ones a row stands for; waiting for late members is inside, as it is in Inspector. A running job adds gauges of
its last look (``LIVE_METRICS``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ringwright.ground import drafts
from ringwright.ground.errors import InputError
from ringwright.ground.trace_tables import Row
from ringwright.model.collective import BUS_FACTORS

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

EXPORTS = {"prometheus": "prometheus"}
_SPELLED = {
    "all-reduce": "AllReduce",
    "all-gather": "AllGather",
    "reduce-scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "all-to-all": "AlltoAll",
    "reduce": "Reduce",
    "gather": "Gather",
    "scatter": "Scatter",
    "send": "Send",
    "recv": "Recv",
}
METRICS = {
    "nccl_bus_bandwidth_gbs": ("gauge", "Mean bus bandwidth in GB/s"),
    "nccl_collective_exec_time_microseconds": ("gauge", "Mean time of a collective in microseconds"),
    "nccl_collectives_total": ("counter", "Collectives seen"),
    "nccl_collective_bytes_total": ("counter", "Bytes of the collectives seen, nccl-tests size"),
}
LIVE_METRICS = {
    "ringwright_calls_per_second": ("gauge", "Calls of an operation a second since the look before"),
    "ringwright_bytes_per_second": ("gauge", "Bytes of an operation a second since the look before, nccl-tests size"),
    "ringwright_nic_sent_bytes_per_second": (
        "gauge",
        "Bytes a second that a NIC sent, by the account of the algorithms",
    ),
    "ringwright_nic_received_bytes_per_second": (
        "gauge",
        "Bytes a second that a NIC received, by the account of the algorithms",
    ),
    "ringwright_rank_behind_calls": ("gauge", "Calls that a rank is behind the foremost of its communicator"),
    "ringwright_rank_still_looks": ("gauge", "Looks in a row that a rank is behind and has not moved"),
    "ringwright_quiet_seconds": ("gauge", "Seconds since a file of the job has grown"),
    "ringwright_errors": ("gauge", "Errors in the recording"),
    "ringwright_alerts": ("gauge", "Alerts that hold: the value that crossed"),
}


class MetricSample(NamedTuple):
    """A value of a metric under its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(trace: Trace) -> list[MetricSample]:
    """Return the values of ``METRICS``; raise InputError where the Trace holds no collective."""
    table = _table(trace).to_dicts()
    if not table:
        raise InputError(
            "the Trace holds no collective", where=str(trace.meta.get("source", "")), remedy="ringwright doctor"
        )
    return [MetricSample(name, _labels(row), row[name]) for name in METRICS for row in table if row[name] is not None]


def lines(trace: Trace, live: Sequence[MetricSample] = ()) -> list[str]:
    """Return the text's lines, also of a running job's gauges; InputError where the Trace holds no collective.

    They are OpenMetrics, which names a counter without its ``_total``; to older readers that line and the last are comments.
    """
    of: dict[str, list[MetricSample]] = {name: [] for name in METRICS}
    for sample in (*samples(trace), *live):
        of.setdefault(sample.name, []).append(sample)
    texts = []
    for name, values in of.items():
        kind, what = (METRICS | LIVE_METRICS)[name]
        family = name.removesuffix("_total") if kind == "counter" else name
        texts += [f"# TYPE {family} {kind}", f"# HELP {family} {what}"]
        for sample in values:
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels.items())
            texts.append(f"{name}{{{labels}}} {sample.value:.10g}" if labels else f"{name} {sample.value:.10g}")
    return [*texts, "# EOF"]


def prometheus(trace: Trace, path: str | Path, *, force: bool = False, live: Sequence[MetricSample] = ()) -> list[Path]:
    """Write the textfile in one move, so that a collector never reads half of it."""
    from ringwright.formats.exports.placement import claim_file

    return [drafts.write(claim_file(path, force=force), "\n".join(lines(trace, live)) + "\n")]


def bucket(size_bytes: int | None) -> str:
    """Return the size class as Inspector prints it: ``1-2MB``; bounds are powers of two."""
    if size_bytes is None:
        return "unknown"
    if size_bytes < 1:
        return "0B"
    low = 1 << (size_bytes.bit_length() - 1)
    unit, scale = next((u, s) for u, s in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1)) if low >= s)
    return f"{low // scale}-{2 * low // scale}{unit}"


def _table(trace: Trace) -> pl.DataFrame:
    import polars as pl

    names = _names(trace.table("communicators").to_dicts())
    keys = ["op", "message_size", "algo_proto", "nranks", "nnodes", "communicator"]
    calls = trace.scan("events").filter(pl.col("kind") == "collective").collect()
    if not calls.height:
        return pl.DataFrame()
    weight = pl.col("multiplicity").fill_null(1)
    calls = calls.with_columns(
        pl.col("size_bytes").map_elements(bucket, pl.String, skip_nulls=False).alias("message_size"),
        pl.concat_str(pl.col("algorithm", "protocol").fill_null("unknown"), separator="_").alias("algo_proto"),
        weight.alias("weight"),
        _bus_gbs().alias("bus"),
    )
    timed = pl.col("duration_s").is_not_null()
    mean = (pl.col("duration_s") * pl.col("weight")).filter(timed).sum() / pl.col("weight").filter(timed).sum()
    fast = pl.col("bus").is_not_null()
    bus = (pl.col("bus") * pl.col("weight")).filter(fast).sum()
    return (
        calls.group_by(keys)
        .agg(
            (bus / pl.col("weight").filter(fast).sum()).alias("nccl_bus_bandwidth_gbs"),
            (mean * 1e6).alias("nccl_collective_exec_time_microseconds"),
            pl.col("weight").sum().cast(pl.Float64).alias("nccl_collectives_total"),
            pl.when(pl.col("size_bytes").is_not_null().all())
            .then((pl.col("size_bytes") * pl.col("weight")).sum())
            .cast(pl.Float64)
            .alias("nccl_collective_bytes_total"),
        )
        .with_columns(
            pl.col("communicator").replace_strict(names, default="", return_dtype=pl.String).alias("comm_name"),
            pl.col("nccl_bus_bandwidth_gbs", "nccl_collective_exec_time_microseconds").fill_nan(None),
        )
        .sort(keys, nulls_last=True)
    )


def _names(communicators: list[Row]) -> dict[int, str]:
    """Return a name of each communicator that no other has: two series with the same labels would be refused."""
    said = {row["communicator"]: row["name"] or row["comm_id"] or "" for row in communicators}
    times = Counter(said.values())
    apart = {number: name if name and times[name] == 1 else f"{name} {number}".strip() for number, name in said.items()}
    return {
        number: name if len(set(apart.values())) == len(apart) else f"{name} {number}" for number, name in apart.items()
    }


def _bus_gbs() -> pl.Expr:
    """Return size/time times the bus factor of the group's size, GB/s."""
    import polars as pl

    p = pl.col("nranks").cast(pl.Float64)
    share = pl.col("op").replace_strict(BUS_FACTORS, default=None, return_dtype=pl.Float64) * (p - 1) / p
    timed = pl.when((pl.col("duration_s") > 0) & (p > 1)).then(pl.col("size_bytes") / pl.col("duration_s") / 1e9)
    return timed * pl.when(pl.col("op").is_in(BUS_FACTORS)).then(share).otherwise(1.0)


def spelled(op: str) -> str:
    """Return an operation as Inspector spells it."""
    return _SPELLED.get(op, op)


def _labels(row: dict[str, Any]) -> dict[str, str]:
    labels = {
        "collective": spelled(str(row["op"])),
        "message_size": row["message_size"],
        "algo_proto": row["algo_proto"],
        "nranks": row["nranks"],
        "n_nodes": row["nnodes"],
        "comm_name": row["comm_name"],
    }
    return {name: "" if value is None else str(value) for name, value in labels.items()}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
