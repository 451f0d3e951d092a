"""What differs between models: operations, bytes, sizes of requests, bursts; and what a network engineer must provide for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.analysis.request_shapes import shape
from ringwright.costs.traffic import sent_total
from ringwright_lab.sweep.point import GridPoint

if TYPE_CHECKING:
    import polars as pl

GAP_S = 0.01  # requests closer than this are one burst


def patterns(point: GridPoint, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return what one rank asks for in a steady iteration, or for the prompt and for one token; ``frame``: all its calls."""
    turns = {"prompt": 0, "token": 1} if point.mode == "inference" else {"iteration": min(2, point.steps - 1)}
    made = (_pattern(point, frame, turn, number) for turn, number in turns.items())
    return [each for each in made if each is not None]


def _pattern(point: GridPoint, frame: pl.DataFrame, turn: str, number: int) -> dict[str, Any] | None:
    import polars as pl

    rank = frame["rank"].drop_nulls().min()
    mine = frame.filter((pl.col("rank") == rank) & (pl.col("iteration") == number))
    if mine.is_empty():
        return None
    by_op = mine.group_by("op").agg(pl.len().alias("calls"), pl.col("size_bytes").sum().alias("bytes")).sort("bytes")
    total = int(by_op["bytes"].sum() or 0)
    request = shape(mine.select("op", pl.col("size_bytes").fill_null(0)).iter_rows())
    wire = sum(_wire(*row) for row in mine.select("op", "size_bytes", "nranks").iter_rows())
    return {
        **point.row(),
        "turn": turn,
        "calls": mine.height,
        "bytes": total,
        "wire_bytes": wire,
        "like": request.like,
        "top_share": request.top_share,
        "repeated_share": request.repeated_share,
        "distinct": mine["size_bytes"].n_unique(),
        "sizes": _sizes(mine),
        "operations": by_op.reverse().to_dicts(),
        "burst_bytes": _burst(mine),
        "roles": mine.group_by("role").agg(pl.col("size_bytes").sum().alias("bytes")).sort("role").to_dicts(),
        "course": _course(mine),
    }


def _wire(op: str, size: int | None, p: int | None) -> float:
    """Return the bytes that a rank sends for a call: its share of what an algorithm without waste sends in all."""
    if op in ("send", "recv"):
        return float(size or 0) if op == "send" else 0.0
    return sent_total(op, size or 0, p) / p if p and p > 1 else 0.0


def _sizes(mine: pl.DataFrame) -> list[dict[str, Any]]:
    import polars as pl

    return mine.group_by("op", "size_bytes").agg(pl.len().alias("calls")).sort("size_bytes", "op").to_dicts()


def _burst(mine: pl.DataFrame) -> int | None:
    """Return the bytes of the largest run of requests within GAP_S of each other; None for a fake job, which has no time."""
    largest = current = 0
    last = None
    if mine["duration_s"].null_count() == mine.height:
        return None
    for at, size in mine.sort("enqueue_s").select("enqueue_s", "size_bytes").iter_rows():
        current = current + (size or 0) if last is not None and at - last <= GAP_S else (size or 0)
        largest, last = max(largest, current), at
    return largest


def _course(mine: pl.DataFrame) -> list[tuple[float, int, str]]:
    """Return (seconds since the iteration's first request, bytes, operation) of each request."""
    rows = mine.sort("enqueue_s").select("enqueue_s", "size_bytes", "op").rows()
    return [(at - rows[0][0], size or 0, op) for at, size, op in rows]


def provisions(patterns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each pattern needs: bytes on a rank's wire an iteration, the rate to move them in a tenth of a second."""
    return [
        {
            **{
                name: row[name]
                for name in ("cell", "model", "size", "parallel", "mode", "turn", "wire_bytes", "burst_bytes")
            },
            "largest_bytes": row["sizes"][-1]["size_bytes"],
            "rate_for_100ms_gbit_s": row["wire_bytes"] * 8 / 0.1 / 1e9,
            "advice": _advice(row),
        }
        for row in patterns
    ]


def _advice(row: dict[str, Any]) -> str:
    """Return which choice of framework or topology follows from the pattern."""
    largest = row["sizes"][-1]["size_bytes"] or 0
    if row["mode"] == "inference" and largest < 1 << 20:
        return "latency decides: keep the group inside one node or under one switch; small-message protocols, trees"
    if row["form"] == "ep":
        return "all-to-all: full bisection between the experts' ranks; rails do not help what crosses them"
    if row["form"] == "pp":
        return "point to point between neighbours: place stages so that each pair shares a leaf; little bandwidth"
    if row["like"] == "VGG-like":
        return "one request holds most bytes, with little left to hide it behind: split it, or send sufficient factors"
    if row["form"] in ("fsdp", "tp+fsdp"):
        return (
            "gathers before every block: bandwidth in steady use; prefetch depth and shard groups inside a rail matter"
        )
    if row["form"] == "tp":
        return "requests in the path of every layer: NVLink-class bandwidth inside the group, nothing to overlap"
    return "gradients in buckets behind backward: overlap hides them where the wire carries a bucket in a block's backward time"
