"""What one grid point's recording says: calls an iteration by phase, role, operation and size, their times, and the steps'."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ringwright.workloads.expected.row import ExpectedRow
from ringwright_lab.sweep import work
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.program import must_issue

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

Issued = Counter[tuple[str, str, int, int]]  # role, op, size_bytes, sent_bytes: how often
# A pipeline's stages tell each other shapes before the first of them computes: set-up and first iteration are one there.
WHENS = {
    "training": ("setup", "first", "second", "later"),
    "staged": ("start", "second", "later"),
    "inference": ("setup", "prefill", "decode"),
}
# Iteration (or prompt and token) that each stands for; -1 is the set-up.
TURNS = {
    "setup": (-1,),
    "start": (-1, 0),
    "first": (0,),
    "second": (1,),
    "later": (2,),
    "prefill": (0,),
    "decode": (1,),
}
_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


def calls(trace: Trace) -> pl.DataFrame:
    """Return every call of every rank with the role of its group."""
    import polars as pl

    roles = trace.table("communicators").select("communicator", pl.col("role").alias("group_role"), "name")
    mine = trace.scan("events").filter(pl.col("kind").is_in(["collective", "p2p"])).collect()
    return mine.join(roles, on="communicator", how="left").with_columns(
        pl.coalesce("role", "group_role", pl.lit("world")).alias("role")
    )


def issued(frame: pl.DataFrame, rank: int, when: str) -> Issued:
    """Return what a rank issued in the set-up, in the first, second or third iteration, or for the prompt or a token."""
    import polars as pl

    mine = frame.filter(pl.col("rank") == rank)
    turn = pl.col("iteration").fill_null(-1)
    chosen = mine.filter(turn.is_in(TURNS[when]))
    counts: Issued = Counter()
    for role, op, size, sent in chosen.select("role", "op", "size_bytes", "sent_bytes").iter_rows():
        counts[role, op, size, sent or 0] += 1
    return counts


def formula(rows: list[ExpectedRow], mode: str, when: str) -> Issued:
    """Return what the closed formulas say for that time."""
    counts: Issued = Counter()
    for turn in TURNS[when]:
        for row in work.issued(rows, mode, turn):
            counts[row.role, row.op, row.size_bytes, row.sent_bytes] += row.count
    return counts


def agreement(point: GridPoint, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return per time what the formulas say and what was recorded, summed over ranks; equal means on every rank, to the unit."""
    ranks = [rank for rank in frame["rank"].unique().sort().to_list() if rank is not None]
    rows = {rank: must_issue(point, rank) for rank in ranks}
    compared = []
    kind = "inference" if point.mode == "inference" else "staged" if point.spread["form"] == "pp" else "training"
    for when in WHENS[kind]:
        if point.mode != "inference" and TURNS[when][0] >= point.steps:
            continue
        both = [(rank, formula(rows[rank], point.mode, when), issued(frame, rank, when)) for rank in ranks]
        words = [f"rank {rank}: {_difference(said, seen)}" for rank, said, seen in both if said != seen]
        compared.append(
            {
                "cell": point.key,
                "when": when,
                "ranks": len(ranks),
                "agrees": not words,
                "difference": "; ".join(words[:2]),
                "expected_calls": sum(said.total() for _, said, _ in both),
                "recorded_calls": sum(seen.total() for *_, seen in both),
                "expected_bytes": sum(_bytes(said) for _, said, _ in both),
                "recorded_bytes": sum(_bytes(seen) for *_, seen in both),
            }
        )
    return compared


def _bytes(of: Issued) -> int:
    return sum(size * count for (_, _, size, _), count in of.items())


def _difference(said: Issued, seen: Issued) -> str:
    words = [f"{count} x {' '.join(map(str, what))} too few" for what, count in (said - seen).items()]
    words += [f"{count} x {' '.join(map(str, what))} too many" for what, count in (seen - said).items()]
    return "; ".join(words[:6])


def results(point: GridPoint, trace: Trace, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return rows of the sweep's table: one per phase, role, operation and size, and one for steps."""
    import polars as pl

    warm = frame.filter(
        pl.col("iteration").is_null() | (pl.col("iteration") >= min(point.warm, max(point.steps - 1, 0)))
    )
    iterations = max(1, frame.select(pl.col("iteration").filter(pl.col("iteration") >= point.warm).n_unique()).item())
    both = ["phase", "role", "op", "size_bytes", "communicator", "sequence", "iteration"]
    joined = warm.filter(pl.col("kind") == "collective").group_by(both).agg(_slowest())
    single = warm.filter(pl.col("kind") == "p2p").select(
        *both,
        pl.col("duration_s").alias("slowest_s"),
        pl.col("layer"),
        pl.lit(1).alias("ranks"),
        pl.col("duration_s").alias("fastest_s"),
    )
    whole = pl.concat([joined.select(single.columns), single], how="vertical_relaxed")
    keys = ["phase", "role", "op", "size_bytes"]
    grouped = whole.group_by(keys, maintain_order=True).agg(
        pl.len().alias("calls"),
        pl.col("layer").n_unique().alias("layers"),
        *(_us("slowest_s", name, quantile) for name, quantile in _QUANTILES.items()),
        pl.col("fastest_s").median().mul(1e6).alias("transfer_us_p50"),
    )
    base = point.row()
    rows = []
    for row in grouped.sort("phase", "op", "size_bytes", nulls_last=True).iter_rows(named=True):
        in_setup = row["phase"] == "setup"
        row["calls_per_iteration"] = None if in_setup else row["calls"] / iterations
        row["bytes_per_iteration"] = None if in_setup else row["calls"] * (row["size_bytes"] or 0) / iterations
        rows.append({**base, "what": "collective", **row})
    return [*rows, {**base, "what": "step", "op": "step", **steps(point, trace)}]


def _slowest() -> list[pl.Expr]:
    import polars as pl

    took = pl.col("duration_s")
    return [
        took.max().alias("slowest_s"),
        pl.col("layer").first(),
        pl.col("rank").n_unique().alias("ranks"),
        took.min().alias("fastest_s"),
    ]


def _us(column: str, name: str, quantile: float) -> pl.Expr:
    import polars as pl

    return pl.col(column).quantile(quantile, "linear").mul(1e6).alias(f"time_us_{name}")


def step_times(point: GridPoint, trace: Trace) -> pl.DataFrame:
    """Return iteration and seconds of its slowest rank, without the warm-up."""
    import polars as pl

    mine = trace.scan("events").filter((pl.col("kind") == "step") & (pl.col("iteration") >= point.warm))
    return mine.group_by("iteration").agg(pl.col("duration_s").max()).sort("iteration").collect()


def steps(point: GridPoint, trace: Trace) -> dict[str, Any]:
    """Return how many steps after the warm-up there are, and quantiles of their times."""
    took = step_times(point, trace)["duration_s"]
    figures: dict[str, Any] = {"calls": len(took)}
    for name, quantile in _QUANTILES.items():
        value = took.quantile(quantile, "linear")
        figures[f"time_us_{name}"] = value * 1e6 if value is not None else None
    return figures
