"""How should the axes of a job lie on a machine? Every parallelism matrix is priced by rings, the cheapest are simulated.

A placement says which device each rank of the job has: the fabric's ranks are numbered anew, and the job is simulated as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.ring_steps import Rings, rings
from ringwright.algorithms.synthesis.p2.machine import MachineLevels, levels_of
from ringwright.algorithms.synthesis.p2.matrices import Matrix, devices, matrices
from ringwright.calls.rank_permutation import renumbered
from ringwright.ground import stepwise
from ringwright.ground.errors import UsageError
from ringwright.jobs.rows import asked, row
from ringwright.jobs.study import Job, PolicyResult, answer
from ringwright.model.stages import VOLUME, hops_of

if TYPE_CHECKING:
    from ringwright.model.topology import Topology
    from ringwright.model.workload import Mesh, Workload

SCHEMA = "ringwright.placements/1"
USUAL, USUAL_RANKS, LEAST = 16, 64, 4  # placements that are simulated: fewer of a job of more ranks, which takes longer
KEPT = (
    *(
        "step_us",
        "step_us_p05",
        "step_us_p50",
        "step_us_p95",
        "outside",
        "compute_us",
        "update_us",
        "exposed_comm_us",
        "idle_us",
        "healthy",
    ),
    *("by_role", "ranks", "simulated_ranks", "steady", "engine"),
)


@dataclass(frozen=True)
class PlacedAxes:
    """A matrix of the job's axes over the machine's levels, and the device of each rank: int64 of shape (ranks,)."""

    matrix: Matrix
    devices: np.ndarray

    @property
    def is_as_numbered(self) -> bool:
        """Whether rank i has device i."""
        return bool((self.devices == np.arange(len(self.devices))).all())


def placements(workload: Workload, topology: Topology) -> tuple[MachineLevels, list[PlacedAxes]]:
    """Return the machine's levels and every placement, those first that cost least by rings; UsageError where none fits."""
    levels, every = every_placement(workload.mesh, topology)
    prices = [_price_s(workload, topology, each.devices) for each in every]
    return levels, [every[at] for at in sorted(range(len(every)), key=lambda at: (prices[at], at))]


def every_placement(mesh: Mesh, topology: Topology) -> tuple[MachineLevels, list[PlacedAxes]]:
    """Return the machine's levels and every placement of a job's axes over them; UsageError where none fits."""
    if mesh.size > topology.n_ranks:
        raise UsageError(
            f"{mesh.size} ranks do not fit on {topology.name}, which has {topology.n_ranks}",
            remedy="a larger fabric, or fewer GPUs",
        )
    if mesh.size == 1:
        raise UsageError("one GPU has nothing to place", remedy="--gpus 64 --parallel tp8,pp4")
    levels = levels_of(topology, range(mesh.size))
    every = [
        PlacedAxes(matrix, levels.order[devices(matrix).reshape(-1)])
        for matrix in matrices([size for _, size in mesh.axes], levels.sizes)
    ]
    return levels, every


def _price_s(workload: Workload, topology: Topology, of: np.ndarray) -> float:
    """Return the seconds of all that a step sends, one operation after the other, by rings; nothing is overlapped."""
    mesh, known = workload.mesh, dict[tuple[str, ...], Rings]()
    grid = of.reshape([size for _, size in mesh.axes])
    names = [name for name, _ in mesh.axes]
    total = 0.0
    for each in workload.payloads:
        members = mesh.extent(each.axes)
        if members < 2:
            continue
        if each.axes not in known:
            inside = [names.index(axis) for axis in each.axes]
            rows = np.moveaxis(grid, inside, range(-len(inside), 0)).reshape(-1, members)
            known[each.axes] = rings(topology, rows)
        machine, kind = known[each.axes], hops_of(each.op)[0]
        volume = VOLUME[kind](members) if kind in VOLUME else 1.0
        times = 1 if each.per == "step" else workload.micro_batches
        total += times * (volume * members * machine.alpha_s + volume * each.size_bytes * machine.beta_s)
    return total


def placed(
    made: Callable[[Topology], Job],
    topology: Topology,
    policy: str,
    most: int | None = None,
    progress: stepwise.Advance | None = None,
) -> dict[str, object]:
    """Return the object of schema ``ringwright.placements/1``: a row a placement, the fastest step first.

    ``made`` makes the job for a machine. The ``most`` cheapest placements are simulated (None: 16, fewer of more than 64
    ranks), and that in which rank i has device i. Who interrupts it gets the rows so far.
    """
    plain = made(topology)
    levels, every = placements(plain.workload, topology)
    if most is None:
        most = max(LEAST, min(USUAL, USUAL * USUAL_RANKS // plain.workload.mesh.size))
    wanted = [each for at, each in enumerate(every) if at < most or each.is_as_numbered]
    rows: list[tuple[float, dict[str, object]]] = []
    stopped = False
    try:
        for each in stepwise.track_progress(wanted, progress, lambda _: "placement"):
            job = plain if each.is_as_numbered else made(renumbered(topology, each.devices))
            rows.append(_row(answer(job, policy), each, levels))
    except KeyboardInterrupt:
        if not rows:
            raise
        stopped = True
    return {
        "schema": SCHEMA,
        "asked": asked(plain, [policy]),
        "workload": plain.workload.name,
        "fabric": topology.name,
        "mesh": dict(plain.workload.mesh.axes),
        "levels": dict(zip(levels.names, levels.sizes, strict=True)),
        "policy": policy,
        "placements": len(every),
        "stopped": stopped,
        "rows": [each for _, each in sorted(rows, key=lambda timed: timed[0])],
        "assumptions": [*plain.assumptions, *plain.remarks()],
        "left_out": list(plain.left_out),
    }


def _row(result: PolicyResult, placement: PlacedAxes, levels: MachineLevels) -> tuple[float, dict[str, object]]:
    """Return the seconds of a step, and the row of a placement."""
    known = row(result)
    matrix = {
        axis: {name: part for name, part in zip(levels.names, parts, strict=True) if part > 1}
        for (axis, _), parts in zip(result.workload.mesh.axes, placement.matrix, strict=True)
    }
    return result.step_s, {
        "matrix": matrix,
        "as_numbered": placement.is_as_numbered,
        **{name: known[name] for name in KEPT},
        "devices": placement.devices.tolist(),
    }
