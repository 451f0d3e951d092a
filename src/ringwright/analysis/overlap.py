"""How much communication computation hides, per rank, and why the rest is exposed.

All times are microseconds of union: two kernels at once count once. ``comm_us`` is the time in which a communication
kernel ran (waiting for peers is inside), ``overlapped_us`` the part of it in which a compute kernel ran too,
``exposed_us`` the rest; copies hide nothing, and kernels that only sound like communication count as neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.analysis.intervals import covered, length, union
from ringwright.analysis.kernels import COMMUNICATION, UNKNOWN
from ringwright.analysis.overlap_audit import audit

if TYPE_CHECKING:
    import polars as pl

    from ringwright.trace import Trace

_SUMS = ("comm_us", "exposed_us", "overlapped_us", "compute_us", "memory_us", "unknown_us", "idle_us", "span_us")
_COLUMNS = (
    "rank", "kind", "op", "kernel", "kernel_class", "communicator", "size_bytes", "stream", "iteration", "enqueue_s",
    "start_s", "duration_s", "multiplicity", "file", "line", "clock",
)  # fmt: skip


def overlap(trace: Trace) -> dict[str, Any]:
    """Return the sums over ranks, ``ranks`` (one row each) and ``audit`` (reasons of exposure, the costliest first).

    Sums are None and ``why`` says the reason where the trace holds no times of kernels on a device, or none that
    communicates beside others.
    """
    import polars as pl

    kinds = [*COMMUNICATION, "compute", "memory", "sync"]
    mine = pl.col("kind").is_in(kinds) & pl.col("start_s").is_not_null() & pl.col("duration_s").is_not_null()
    frame = trace.scan("events").filter(mine).select(*_COLUMNS).collect()
    is_device = pl.col("kernel").is_not_null() | pl.col("kind").is_in(["compute", "memory"])
    device = frame.filter(is_device)
    answer: dict[str, Any] = dict.fromkeys(_SUMS)
    answer |= {"ranks": [], "audit": [], "why": None}
    if device.is_empty():
        return answer | {"why": "cannot tell: no device kernel with a time is in the trace"}
    if device.filter(pl.col("kind").is_in(["compute", "memory"])).is_empty():
        return answer | {"why": "cannot tell: the source records communication only, not what else ran"}
    syncs = frame.filter(pl.col("kind") == "sync")
    ranks = [_rank(rank, part) for (rank, *_), part in _by_rank(device).items()]
    answer["ranks"] = sorted(ranks, key=lambda row: (row["rank"] is None, row["rank"]))
    for name in _SUMS:
        answer[name] = round(sum(row[name] * row["multiplicity"] for row in ranks), 3)
    answer["audit"] = audit(device, syncs)
    if not answer["comm_us"]:
        answer["why"] = "no kernel of the catalogue communicates"
    return answer


def _by_rank(frame: pl.DataFrame) -> dict[tuple[Any, ...], pl.DataFrame]:
    return frame.partition_by("rank", as_dict=True)


def _rank(rank: int | None, frame: pl.DataFrame) -> dict[str, Any]:
    import polars as pl

    is_unknown = (pl.col("kernel_class") == UNKNOWN).fill_null(value=False)
    talks = pl.col("kind").is_in(COMMUNICATION)
    comm = _spans(frame.filter(talks))
    compute = _spans(frame.filter((pl.col("kind") == "compute") & ~is_unknown))
    everything = _spans(frame)
    total = length(comm)
    both = float(covered(compute, *comm).sum())
    span = float(everything[1][-1] - everything[0][0]) if len(everything[0]) else 0.0
    row = {
        "comm_us": total,
        "exposed_us": total - both,
        "overlapped_us": both,
        "compute_us": length(compute),
        "memory_us": length(_spans(frame.filter(pl.col("kind") == "memory"))),
        "unknown_us": length(_spans(frame.filter(is_unknown))),
        "idle_us": span - length(everything),
        "span_us": span,
    }
    weight = frame["multiplicity"].max()
    return {"rank": rank, "multiplicity": weight or 1, **{name: round(value, 3) for name, value in row.items()}}


def _spans(frame: pl.DataFrame) -> tuple[Any, Any]:
    starts = frame["start_s"].to_numpy() * 1e6
    return union(starts, starts + frame["duration_s"].to_numpy() * 1e6)
