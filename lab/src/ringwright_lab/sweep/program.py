"""From a grid point to what its ranks are told, and to what they must then issue."""

from __future__ import annotations

from typing import Any

from ringwright.workloads.expected.row import ExpectedRow
from ringwright.workloads.model_cards import card
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.work import SweepWork

WARM = "warm"  # what a rank prints when its warm-up is over


def work(point: GridPoint) -> SweepWork:
    """Return the work of a grid point's ranks; UsageError for a model or a form that does not exist."""
    return SweepWork(
        card(point.model, point.size, **point.changed),
        point.spread,
        point.mode,
        batch=point.batch,
        sequence=point.sequence,
        micro_batches=point.micro_batches,
        steps=point.steps,
        dtype=point.dtype,
        seed=point.seed,
        bucket_cap_mb=point.bucket_cap_mb,
        extra={"warm": point.warm},
    )


def must_issue(point: GridPoint, rank: int = 0) -> list[ExpectedRow]:
    """Return what a rank of the grid point must issue, from closed formulas; UsageError where the grid point is not legal."""
    return work(point).rows(rank)


def told(point: GridPoint) -> dict[str, Any]:
    """Return the JSON object for a rank program (``ringwright_lab.models.spec``)."""
    return work(point).job(fake_rank=0 if point.world else None)
