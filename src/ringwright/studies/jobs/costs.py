"""What operations take on a fabric: each (operation, group, size) is a Program, timed by the engines, once.

Sizes between those that were timed are interpolated. Sibling groups, which do the same at the same time, slow each other where
they share a link of a host. What an operation loads of its ranks' links tells the engine of jobs how much two operations of
different groups disturb each other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.collective import Collective
from ringwright.costs.stages import Stage
from ringwright.engines.choose import simulate
from ringwright.errors import UsageError
from ringwright.registry import algorithm
from ringwright.studies.jobs.faults import marked
from ringwright.studies.jobs.wire import sent_by_ranks
from ringwright.workload import Mesh

if TYPE_CHECKING:
    from ringwright.engines.result import Run
    from ringwright.program import Program
    from ringwright.topology import Topology
    from ringwright.workload import Workload

GRID = tuple(1 << power for power in range(12, 31, 2))  # 4 KiB to 1 GiB
PROBE = 16 << 20
LIBRARY = "nccl-2-4"
RING = "send-recv"
LEAST_SHARE = 0.02


@dataclass(frozen=True)
class TimedRanks:
    """Ranks as they are timed; ``healthy``: none of their hosts' links has a fault."""

    ranks: tuple[int, ...]
    healthy: bool = True


def on_fabric(topology: Topology, workload: Workload, algorithm: str = "") -> FabricCosts:
    """Return what the operations of a workload take on a machine by one algorithm ("": NCCL's own choices)."""
    axes = {payload.role: payload.axes for payload in workload.payloads}
    return FabricCosts(topology, workload.mesh, axes, {"": algorithm} if algorithm else {})


@dataclass
class FabricCosts:
    """Costs on ``topology``, where rank i of the job is rank i of the fabric.

    ``algorithms`` (operation -> spelling, "" for all others) says which system does what; ``axes`` (role -> axes of ``mesh``)
    who does the same at the same time. ``units`` is the share of compute units that an operation holds.
    """

    topology: Topology
    mesh: Mesh
    axes: Mapping[str, tuple[str, ...]]
    algorithms: Mapping[str, str] = field(default_factory=dict)
    units: float = 0.12
    width_bytes: int = 4
    timed: dict[tuple[str, TimedRanks, int], tuple[float, Run]] = field(default_factory=dict, repr=False)
    factors: dict[tuple[str, str, TimedRanks], tuple[float, tuple[tuple[str, float], ...]]] = field(
        default_factory=dict, repr=False
    )
    sent: dict[tuple[str, TimedRanks, int], float] = field(default_factory=dict, repr=False)
    left: dict[str, str] = field(default_factory=dict)  # what an algorithm left to the library: operation -> why

    def __post_init__(self) -> None:
        if self.topology.n_ranks < self.mesh.size:
            raise UsageError(
                f"{self.mesh.size} ranks do not fit on {self.topology.name}, which has {self.topology.n_ranks}",
                remedy="a larger fabric, or fewer GPUs",
            )
        self.healthy = replace(self.topology, faults=())
        self.faulty = frozenset(marked(self.topology, self.topology.n_ranks)) if self.topology.faults else frozenset()

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases of an operation among ``ranks``: one, but for a server's two."""
        if len(ranks) < 2:
            return (Stage(0.0, loads=()),)
        if op == "push-pull":
            halves = (("reduce-scatter", "push"), ("all-gather", "pull"))
            return tuple(self._stage(each, size_bytes, ranks, role, phase) for each, phase in halves)
        if op == "factors":
            return (self._stage("all-gather", size_bytes * len(ranks), ranks, role, ""),)
        if op == "shift":
            return (self._stage(RING, size_bytes, ranks[:2], role, ""),)
        return (self._stage(op, size_bytes, ranks, role, ""),)

    def told(self) -> list[str]:
        """Return sentences about operations that the chosen algorithm cannot do, as far as they were met."""
        return list(self.left.values())

    def _stage(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str, phase: str) -> Stage:
        placed = self._canonical(ranks)
        factor, loads = self._shared(op, placed, role)
        return Stage(self._seconds(op, size_bytes, placed) * factor, 0.0, phase, loads, self.units)

    def _canonical(self, ranks: tuple[int, ...]) -> TimedRanks:
        """Return a group that is timed for all that lie alike: the same places in the hosts, as many hosts apart."""
        hosts, healthy = self.topology.hosts, self.faulty.isdisjoint(ranks)
        if not healthy or hosts is None or not self.topology.is_symmetric:
            return TimedRanks(ranks, healthy)
        per_host = int(np.bincount(hosts).max())
        shift = min(ranks) // per_host * per_host
        return TimedRanks(tuple(rank - shift for rank in ranks))

    def _seconds(self, op: str, size_bytes: int, group: TimedRanks) -> float:
        """Return seconds, straight lines between the sizes of the grid."""
        at = min(max(bisect_left(GRID, size_bytes), 1), len(GRID) - 1)
        if size_bytes <= GRID[0]:
            return self._timed(op, GRID[0], group)
        low, high = GRID[at - 1], GRID[at]
        before, after = self._timed(op, low, group), self._timed(op, high, group)
        return before + (after - before) * (size_bytes - low) / (high - low)

    def _timed(self, op: str, size_bytes: int, group: TimedRanks) -> float:
        return self.run(op, size_bytes, group)[0]

    def run(self, op: str, size_bytes: int, group: TimedRanks) -> tuple[float, Run]:
        """Return seconds and the run of one operation, from memory where it was asked before."""
        key = (op, group, size_bytes)
        if key not in self.timed:
            run = simulate(self.program(op, size_bytes, group), self._machine(group))
            self.timed[key] = (run.time_s, run)
        return self.timed[key]

    def program(self, op: str, size_bytes: int, group: TimedRanks) -> Program:
        """Return how the system that is asked for does an operation, the library where that system does not do it."""
        ranks, machine = group.ranks, self._machine(group)
        spelling = self.algorithms.get(op) or (LIBRARY if op == RING else self.algorithms.get("", LIBRARY))
        _, make, knobs = algorithm(spelling)
        even = -(-size_bytes // (len(ranks) * self.width_bytes)) * len(ranks) * self.width_bytes
        try:
            program: Program = make(Collective(op, ranks, even, "float32"), machine, **knobs)
        except UsageError as error:
            if spelling == LIBRARY:
                raise
            _, make, _ = algorithm(LIBRARY)  # a system that does one collective leaves the others to the library
            self.left.setdefault(op, f"{op} among {len(ranks)} ranks by {LIBRARY}: {error.what}")
            program = make(Collective(op, ranks, even, "float32"), machine)
        return program

    def sent_bytes(self, op: str, size_bytes: int, ranks: tuple[int, ...]) -> float:
        """Return the bytes that all ranks of a group together put on wires in one operation, a protocol's flags among them."""
        if len(ranks) < 2 or not size_bytes:
            return 0.0
        if op in (RING, "shift"):
            return float(size_bytes) * (1 if op == RING else len(ranks))
        if op == "push-pull":
            return sum(self.sent_bytes(each, size_bytes, ranks) for each in ("reduce-scatter", "all-gather"))
        if op == "factors":
            return self.sent_bytes("all-gather", size_bytes * len(ranks), ranks)
        key = (op, self._canonical(ranks), size_bytes)
        if key not in self.sent:
            self.sent[key] = sent_by_ranks(self.program(op, size_bytes, key[1]))
        return self.sent[key]

    def _machine(self, group: TimedRanks) -> Topology:
        return self.healthy if group.healthy else self.topology

    # ------------------------------------------------------------------------------------------------------ disturbance
    def _shared(self, op: str, group: TimedRanks, role: str) -> tuple[float, tuple[tuple[str, float], ...]]:
        """Return how much longer it takes beside its siblings, and its loads by class of link."""
        key = (op, role, group)
        if key not in self.factors:
            own, run = self.run(op, PROBE, group)
            busy = _busy(run).copy()
            mine = busy > 0
            for sibling in self._siblings(op, group.ranks, role):
                busy += _busy(self.run(op, PROBE, TimedRanks(sibling, group.healthy))[1])
            factor = max(1.0, float(busy[mine].max(initial=0.0)) / (own * 1e12)) if own else 1.0
            self.factors[key] = (factor, self._loads(run, own))
        return self.factors[key]

    def _siblings(self, op: str, ranks: tuple[int, ...], role: str) -> list[tuple[int, ...]]:
        """Return the other groups of this role on the hosts of the first rank: they start when this one does."""
        axes, hosts = self.axes.get(role, ()), self.topology.hosts
        if not axes or hosts is None:
            return []
        near = np.flatnonzero(hosts[: self.mesh.size] == hosts[ranks[0]]).tolist()
        siblings: dict[tuple[int, ...], None] = {}
        for rank in near:
            if op == RING:
                apart = ranks[1] - ranks[0]
                pair = (rank, rank + apart)
                if rank != ranks[0] and 0 <= pair[1] < self.mesh.size and hosts[pair[1]] == hosts[ranks[1]]:
                    siblings[pair] = None
                continue
            group = self.mesh.group(axes, rank)
            if set(group) != set(ranks):
                siblings[group] = None
        return list(siblings)

    def _loads(self, run: Run, seconds: float) -> tuple[tuple[str, float], ...]:
        busy = _busy(run)[: self.topology.n_links]
        if not len(busy) or not seconds:
            return ()
        loads = []
        for number, name in enumerate(self.topology.classes):
            share = float(busy[self.topology.link_class == number].max(initial=0.0)) / (seconds * 1e12)
            if share > LEAST_SHARE:
                loads += [(f"{name}.tx", min(share, 1.0)), (f"{name}.rx", min(share, 1.0))]
        return tuple(loads)


def _busy(run: Run) -> np.ndarray:
    return run.busy_ps.astype(np.float64)
