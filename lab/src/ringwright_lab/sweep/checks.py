"""Whether a grid point can be run, or simulated: asked of all points before the first one starts."""

from __future__ import annotations

from ringwright.ground.errors import UsageError
from ringwright_lab.sweep import environment
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.program import told
from ringwright_lab.sweep.simulated import machine


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
