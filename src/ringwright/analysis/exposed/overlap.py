"""How much communication computation hides, per rank, and why the rest is exposed.

All times are microseconds of union: two kernels at once count once. ``comm_us`` is the time in which a communication
kernel ran (waiting for peers is inside), ``overlapped_us`` the part of it in which a compute kernel ran too,
``exposed_us`` the rest; copies hide nothing, and kernels that only sound like communication count as neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.analysis.exposed.overlap_account import OverlapAccount, account, account_rows
from ringwright.analysis.exposed.overlap_audit import audit, cases
from ringwright.analysis.intervals import covered, length, union
from ringwright.analysis.kernels import COMMUNICATION, UNKNOWN, on_device

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

_SUMS = ("comm_us", "exposed_us", "overlapped_us", "compute_us", "memory_us", "unknown_us", "idle_us", "span_us")
_TALK = (
    "op",
    "size_bytes",
    "iteration",
    "file",
    "communicator",
    "phase",
    "layer",
    "role",
    "thread",
)  # what only the audit of communication asks for


def overlap(trace: Trace) -> dict[str, Any]:
    """Return the sums over ranks, ``ranks`` (one row each), ``operations`` (per operation and size) and ``audit``.

    ``audit`` holds the reasons of exposure, the costliest first.

    Sums are None and ``why`` says the reason where the trace holds no times of kernels on a device, or none that
    communicates beside others.
    """
    import polars as pl

    device = _device(trace)
    talking = device.filter("talks")
    answer: dict[str, Any] = dict.fromkeys(_SUMS)
    answer |= {"ranks": [], "operations": [], "audit": [], "why": None}
    if device.is_empty():
        return answer | {"why": "cannot tell: no device kernel with a time is in the trace"}
    if talking.height == device.height:
        return answer | {"why": "cannot tell: the source records communication only, not what else ran"}
    ranks = [_rank(rank, part) for (rank, *_), part in _by_rank(device).items()]
    answer["ranks"] = sorted(ranks, key=lambda row: (row["rank"] is None, row["rank"]))
    for name in _SUMS:
        answer[name] = round(sum(row[name] * row["multiplicity"] for row in ranks), 3)
    talk, compute = _talk(trace), device.filter(pl.col("kind") == "compute")
    answer["operations"] = _operations(talk, compute)
    launched = talk.filter(pl.col("kernel").is_not_null())  # nothing was launched late where there is no host
    told = account(trace, cases(launched, compute, _syncs(trace)))
    answer["audit"] = audit(told.cases)
    answer |= account_rows(told)
    if not answer["comm_us"]:
        answer["why"] = "no kernel of the catalogue communicates"
    return answer


def explained(trace: Trace) -> OverlapAccount:
    """Return the account of a trace: each exposed operation with its cause, and each fusion that was due.

    Of a trace without kernels that communicate it is empty.
    """
    import polars as pl

    launched = _talk(trace).filter(pl.col("kernel").is_not_null())
    return account(trace, cases(launched, _device(trace).filter(pl.col("kind") == "compute"), _syncs(trace)))


def _operations(talk: pl.DataFrame, compute: pl.DataFrame) -> list[dict[str, Any]]:
    """Return communication time and its exposed part per operation and size; two exposed at once count twice."""
    import polars as pl

    parts = []
    for (rank, *_), part in _by_rank(talk).items():
        starts, lasted = part["start_s"].to_numpy() * 1e6, part["duration_s"].to_numpy() * 1e6
        both = covered(_spans(compute.filter(pl.col("rank").eq_missing(rank))), starts, starts + lasted)
        parts.append(
            part.select("op", "size_bytes").with_columns(comm_us=pl.Series(lasted), exposed_us=pl.Series(lasted - both))
        )
    if not parts:
        return []
    sums = (pl.len().alias("count"), pl.col("comm_us").sum().round(3), pl.col("exposed_us").sum().round(3))
    rows = pl.concat(parts).group_by("op", "size_bytes").agg(*sums).sort("op", "size_bytes", nulls_last=True)
    return rows.to_dicts()


def _measured() -> pl.Expr:
    import polars as pl

    return pl.col("start_s").is_not_null() & pl.col("duration_s").is_not_null()


def _device(trace: Trace) -> pl.DataFrame:
    """What ran on devices, with few columns, for there may be millions: ``kind`` is talk, compute, memory or unknown."""
    import polars as pl

    talks = pl.col("kind").is_in(COMMUNICATION) & on_device()
    runs = pl.col("kind").is_in(["compute", "memory"])
    is_unknown = (pl.col("kernel_class") == UNKNOWN).fill_null(value=False)
    kind = pl.when(talks).then(pl.lit("talk")).when(is_unknown).then(pl.lit("unknown")).otherwise(pl.col("kind"))
    columns = ("rank", "stream", "enqueue_s", "start_s", "duration_s", "multiplicity", "line")
    chosen = trace.scan("events").filter((talks | runs) & _measured())
    return chosen.select(kind.alias("kind"), talks.alias("talks"), *columns).collect()


def _talk(trace: Trace) -> pl.DataFrame:
    import polars as pl

    mine = pl.col("kind").is_in(COMMUNICATION) & on_device() & _measured()
    columns = ("rank", "stream", "kernel", "enqueue_s", "start_s", "duration_s", "line", *_TALK)
    return trace.scan("events").filter(mine).select(*columns).collect()


def _syncs(trace: Trace) -> pl.DataFrame:
    import polars as pl

    mine = (pl.col("kind") == "sync") & _measured()
    return trace.scan("events").filter(mine).select("rank", "op", "start_s", "duration_s", "line").collect()


def _by_rank(frame: pl.DataFrame) -> dict[tuple[Any, ...], pl.DataFrame]:
    return frame.partition_by("rank", as_dict=True)


def _rank(rank: int | None, frame: pl.DataFrame) -> dict[str, Any]:
    import polars as pl

    comm, compute, memory, unknown = (
        _spans(frame.filter(pl.col("kind") == kind)) for kind in ("talk", "compute", "memory", "unknown")
    )
    everything = _spans(frame)
    total = length(comm)
    both = float(covered(compute, *comm).sum())
    span = float(everything[1][-1] - everything[0][0]) if len(everything[0]) else 0.0
    row = {
        "comm_us": total,
        "exposed_us": total - both,
        "overlapped_us": both,
        "compute_us": length(compute),
        "memory_us": length(memory),
        "unknown_us": length(unknown),
        "idle_us": span - length(everything),
        "span_us": span,
    }
    weight = frame["multiplicity"].max()
    return {"rank": rank, "multiplicity": weight or 1, **{name: round(value, 3) for name, value in row.items()}}


def _spans(frame: pl.DataFrame) -> tuple[Any, Any]:
    starts = frame["start_s"].to_numpy() * 1e6
    return union(starts, starts + frame["duration_s"].to_numpy() * 1e6)
