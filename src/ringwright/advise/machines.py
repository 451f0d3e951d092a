"""The machine of a setup: with faster links of one class, with switches that add, or with the ranks laid out anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.advise.provision.network import NetworkTiers
from ringwright.advise.settings import MACHINE, PLACED, Setup
from ringwright.calls.rank_permutation import renumbered
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.jobs.placements import PlacedAxes, every_placement, placements

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.p2.machine import MachineLevels
    from ringwright.model.topology import Topology
    from ringwright.model.workload import Mesh, Workload

FASTER = "links "  # begins the spelling of a class of links at another rate: links port x2
NAMED = "fabric "  # begins that of another fabric: fabric dgx-h100:2,sharp=true


def machine_of(topology: Topology, workload: Workload, setup: Setup) -> Topology:
    """Return the machine with what a setup changes of it; UsageError for a spelling that says nothing of this machine."""
    changed = setup.spelling(MACHINE)
    if changed.startswith(NAMED):
        topology = fabric(changed.removeprefix(NAMED))
    elif changed:
        topology = _faster(topology, changed)
    placed = setup.spelling(PLACED)
    return renumbered(topology, _devices(topology, workload, placed)) if placed else topology


def _faster(topology: Topology, spelling: str) -> Topology:
    name, _, factor = spelling.removeprefix(FASTER).rpartition(" x")
    if name not in topology.classes:
        raise UsageError(f"{topology.name} has no links '{name}'", remedy=f"one of: {', '.join(topology.classes)}")
    return NetworkTiers(topology).scaled({name: float(factor)})


def placed_axes(topology: Topology, workload: Workload) -> list[tuple[str, PlacedAxes]]:
    """Return how the axes of a job may lie on a machine, in words, the cheapest by rings first."""
    levels, every = placements(workload, topology)
    return [(_said(each, levels, workload.mesh), each) for each in every]


def _devices(topology: Topology, workload: Workload, spelling: str) -> np.ndarray:
    """Return the device of each rank, int64 of shape (ranks,)."""
    levels, every = every_placement(workload.mesh, topology)
    for each in every:
        if _said(each, levels, workload.mesh) == spelling:
            return each.devices
    raise UsageError(f"no placement is '{spelling}'", remedy="ringwright workload MODEL --place")


def _said(placed: PlacedAxes, levels: MachineLevels, mesh: Mesh) -> str:
    """Say over which levels of the machine each axis lies: tp: gpu 8; dp: node 4."""
    parts = []
    for (axis, size), by_level in zip(mesh.axes, placed.matrix, strict=True):
        if size > 1:
            lies = " x ".join(f"{name} {part}" for name, part in zip(levels.names, by_level, strict=True) if part > 1)
            parts.append(f"{axis}: {lies}")
    return "; ".join(parts)
