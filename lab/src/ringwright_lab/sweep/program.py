"""From a grid point to what its ranks are told, and to what they must then issue."""

from __future__ import annotations

from typing import Any

from ringwright.base.errors import UsageError
from ringwright.workloads.expected.row import ExpectedRow
from ringwright.workloads.model_cards import card
from ringwright_lab.sweep import environment
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


def check(point: GridPoint) -> None:
    """Raise UsageError where a grid point cannot be run, or, of a library that does not run here, not be simulated."""
    told(point)
    environment.check(point)
    if point.ground == "simulated":
        _check_simulated(point)
        return
    if point.world and (point.fabric or point.fault):
        raise UsageError("a fake job has no network", remedy="leave out fabric and fault, or world")
    if point.world and point.env:
        raise UsageError("a fake job has no library that reads settings", remedy="leave out env, or world")
    if point.fault and not point.fabric:
        raise UsageError("a fault needs a network", remedy='fabric = "switch:4,rate=100Mb/s"')
    if point.world and point.world != point.ranks:
        raise UsageError(f"{point.parallel} has {point.ranks} ranks, world is {point.world}")
    if not point.world and point.ranks > 16:
        raise UsageError(f"{point.ranks} real ranks on one machine", remedy="world = N runs it as a fake job")
    _check_nodes(point)


def _check_simulated(point: GridPoint) -> None:
    """Raise UsageError where a cell has what no model of a library takes, or does not fit its machine."""
    from ringwright_lab.sweep.simulated import machine

    strange = next((name for name in ("world", "fault") if getattr(point, name)), None)
    if strange:
        raise UsageError(
            f"a cell with backend '{point.backend}' is simulated: it has no {strange}",
            remedy=f"leave {strange} out, or backend = 'gloo'",
        )
    if point.nodes < 1:
        raise UsageError(f"nodes = {point.nodes}", remedy="1 or more")
    if point.ranks == 1:
        raise UsageError("one rank communicates with nobody", remedy="parallel = 'ddp:dp=2', or more")
    if point.backend == "mpi" and point.spread["form"] == "pp":
        raise UsageError(
            "the models of MPI libraries have collectives alone, and stages send messages", remedy="backend = 'nccl'"
        )
    machine(point)


def _check_nodes(point: GridPoint) -> None:
    """Raise UsageError for nodes that real ranks do not lie on: this machine is one, and each rank of a lab is one."""
    if point.nodes not in ((1, point.ranks) if point.fabric else (1,)):
        there = f"each of {point.ranks} ranks of a lab is a node" if point.fabric else "this machine is one node"
        raise UsageError(
            f"nodes = {point.nodes}, but {there}",
            remedy=f"fabric = 'switch:{point.ranks},rate=100Mb/s' with nodes = {point.ranks}, or backend = 'nccl' (simulated)",
        )
