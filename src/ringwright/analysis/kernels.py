"""Which kernels ran, how often and how long: summed, and as the time that at least one of them was running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.analysis.intervals import length, union
from ringwright.model.run_tables import SIMULATED_JOB

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

COMMUNICATION = ("collective", "p2p")
UNKNOWN = "unknown-communication"
MOST = 200


def on_device() -> pl.Expr:
    """Whether a call has times of a device: a kernel's, or those of a simulated job."""
    import polars as pl

    return pl.col("kernel").is_not_null() | (pl.col("source") == SIMULATED_JOB)


def kernels(trace: Trace, most: int = MOST) -> list[dict[str, Any]]:
    """Return ``name, class, count, sum_us, union_us`` per kernel: communication first, then by time, ``most`` at most.

    ``sum_us`` adds up durations; ``union_us`` is, per rank and then added over ranks, the time in which the kernel ran at
    all, which is less where two run at once. Beyond ``most`` one last row, named "others", holds the rest.
    """
    import polars as pl

    frame = device_time(trace)
    ranked = _ranked(frame)
    rows = [_row(name, kind, part) for (name, kind), part in _parts(frame, ranked.head(most))]
    rest = ranked.slice(most)
    if rest.height:
        part = frame.join(rest.select("kernel", "kernel_class"), on=["kernel", "kernel_class"], how="semi")
        total = _row(f"others ({rest.height:,} names)", "compute", part)
        communicating = part.filter(pl.col("communicates"))
        rows.append(total | {"class": "mixed" if communicating.height else "compute"})
    return rows


def device_time(trace: Trace) -> pl.DataFrame:
    """Return what ran on devices: rank, kernel, class, whether it communicates, start and duration in microseconds."""
    import polars as pl

    is_mine = pl.col("kind").is_in([*COMMUNICATION, "compute", "memory"]) & pl.col("duration_s").is_not_null()
    columns = (
        pl.col("rank").fill_null(-1),
        "kind",
        pl.coalesce("kernel", "op", "kind").alias("kernel"),
        pl.coalesce("kernel_class", "kind").alias("kernel_class"),
        pl.col("kind").is_in(COMMUNICATION).alias("communicates"),
        (pl.col("start_s") * 1e6).alias("start_us"),
        (pl.col("duration_s") * 1e6).alias("duration_us"),
        pl.max_horizontal(pl.col("records").fill_null(1), 1).alias("launches"),
        pl.col("multiplicity").fill_null(1).alias("multiplicity"),
    )
    return trace.scan("events").filter(is_mine).select(*columns).collect()


def _ranked(frame: pl.DataFrame) -> pl.DataFrame:
    """Names by whether they communicate, then what may, then by time."""
    import polars as pl

    grouped = frame.group_by("kernel", "kernel_class").agg(
        pl.col("communicates").any(), (pl.col("duration_us") * pl.col("multiplicity")).sum().alias("total")
    )
    order = grouped.with_columns(
        pl.when(pl.col("communicates"))
        .then(0)
        .when(pl.col("kernel_class") == UNKNOWN)
        .then(1)
        .otherwise(2)
        .alias("place")
    )
    return order.sort("place", "total", "kernel", descending=[False, True, False])


def _parts(frame: pl.DataFrame, chosen: pl.DataFrame) -> list[tuple[tuple[str, str], pl.DataFrame]]:
    keys = ["kernel", "kernel_class"]
    mine = frame.join(chosen.select(keys), on=keys, how="semi").partition_by(keys, as_dict=True)
    return [((name, kind), mine[name, kind]) for name, kind in chosen.select(keys).rows()]


def _row(name: str, kind: str, part: pl.DataFrame) -> dict[str, Any]:
    import polars as pl

    weight = pl.col("multiplicity")
    count, total = part.select((pl.col("launches") * weight).sum(), (pl.col("duration_us") * weight).sum()).row(0)
    placed = part.filter(pl.col("start_us").is_not_null())
    together = 0.0 if placed.height else None  # without a start nothing says what ran at once
    for ranked in placed.partition_by("rank", "multiplicity"):
        starts = ranked["start_us"].to_numpy()
        spans = union(starts, starts + ranked["duration_us"].to_numpy())
        together = (together or 0.0) + length(spans) * ranked["multiplicity"][0]
    whole = None if together is None else round(together, 3)
    return {"name": name, "class": kind, "count": int(count), "sum_us": round(total, 3), "union_us": whole}
