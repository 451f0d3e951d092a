"""Who sends in an operation of a simulated job: names of rank classes, their groups and hosts, and of which phase it is.

A Trace of a job and the bursts of its simulation are made of the same answers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.engines.job.groups import OperationGroups
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.model.workload import PHASES, SHIFTS

if TYPE_CHECKING:
    from ringwright.engines.job.run import JobRun
    from ringwright.engines.job.step import Instances
    from ringwright.jobs.study import Job
    from ringwright.model.rewrites import Operation
    from ringwright.model.topology import Topology
    from ringwright.model.workload import Workload

POINT_TO_POINT = ("send-recv", *SHIFTS)
MOST_PLACED = 4096  # ranks of a job whose hosts are told
MOST_EVENTS = 3_000_000  # of all steps; with more, only the last step is told


@dataclass(frozen=True)
class Senders:
    """The rank classes of a run, asked by row of operations."""

    job: Job
    scheduled: Workload
    run: JobRun

    @cached_property
    def operations(self) -> dict[str, Operation]:
        """The operations by name."""
        return {operation.name: operation for operation in self.run.laid.operations}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A name of each rank class that no other has."""
        rank_classes = self.run.laid.rank_classes
        often = Counter(rank_classes.of)
        return tuple(
            name if often[name] == 1 else f"{name}, rank {rank}"
            for name, rank in zip(rank_classes.of, rank_classes.ranks, strict=True)
        )

    @cached_property
    def _groups(self) -> OperationGroups:
        return OperationGroups(self.scheduled, self.run.laid.rank_classes)

    def steps(self) -> range:
        """Return the steps that are told: all, of many events the last."""
        laid = self.run.laid
        return range(laid.steps) if laid.flat.n <= MOST_EVENTS else range(laid.steps - 1, laid.steps)

    def sending(self, row: Instances) -> list[int]:
        """Return the rank classes that send: all that take part, of a send-recv the sender."""
        taking = list(dict.fromkeys(row.rank_classes))
        return taking[:1] if self.operations[row.name].op == "send-recv" else taking

    def members(self, row: Instances) -> tuple[int, ...]:
        """Return the ranks of one group of a row, in order: along its axes, of a joint operation those that take part."""
        operation, rank_classes = self.operations[row.name], self.run.laid.rank_classes
        if operation.op == "send-recv":
            return self.scheduled.mesh.group(operation.axes, rank_classes.ranks[row.rank_classes[0]])
        return self._groups.ranks(operation, row.rank_classes)

    def phase(self, row: Instances) -> str | None:
        """Return the phase of the tasks whose results a row carries, in inference prefill or decode; None for several or none."""
        tasks = self.scheduled.task
        makers = {name for payload in self.operations[row.name].payloads for name in payload.producers}
        phases = {PHASES.get(tasks[name].kind) for name in makers if name in tasks}
        phase = phases.pop() if len(phases) == 1 else None
        return self.job.passes if self.job.passes and phase == "forward" else phase

    @cached_property
    def topology(self) -> Topology | None:
        """The fabric that tells which hosts the ranks are on; None where none does, or the ranks are too many."""
        costs, size = self.job.costs, self.scheduled.mesh.size
        is_known = isinstance(costs, FabricCosts) and costs.topology.hosts is not None and size <= MOST_PLACED
        return costs.topology if is_known and isinstance(costs, FabricCosts) else None
