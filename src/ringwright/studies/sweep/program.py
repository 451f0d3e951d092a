"""From a grid point to what its ranks are told, and to what they must then issue."""

from __future__ import annotations

from typing import Any

from ringwright.errors import UsageError
from ringwright.studies.sweep.point import GridPoint
from ringwright.studies.sweep.work import SweepWork
from ringwright.workloads.expected.row import ExpectedRow
from ringwright.workloads.model_cards import card

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
    """Return the JSON object for a rank program (``ringwright.execute.models.spec``)."""
    return work(point).job(fake_rank=0 if point.world else None)


def check(point: GridPoint) -> None:
    """Raise UsageError where a grid point cannot be run."""
    told(point)
    if point.world and (point.fabric or point.fault):
        raise UsageError("a fake job has no network", remedy="leave out fabric and fault, or world")
    if point.fault and not point.fabric:
        raise UsageError("a fault needs a network", remedy='fabric = "switch:4,rate=100Mb/s"')
    if point.world and point.world != point.ranks:
        raise UsageError(f"{point.parallel} has {point.ranks} ranks, world is {point.world}")
    if not point.world and point.ranks > 16:
        raise UsageError(f"{point.ranks} real ranks on one machine", remedy="world = N runs it as a fake job")
