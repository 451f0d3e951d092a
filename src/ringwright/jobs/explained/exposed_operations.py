"""The operations of a step, those alike as one: what each takes alone, and how much of them nothing hid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ringwright.analysis.intervals import covered
from ringwright.engines.job.groups import OperationGroups
from ringwright.ground.units import PS
from ringwright.jobs.explained.account import joined, spans
from ringwright.jobs.explained.why import within
from ringwright.jobs.study import PolicyResult
from ringwright.model.rewrites import Operation
from ringwright.model.stages import seconds


class OperationKey(NamedTuple):
    """What operations that are alike have in common; ``ranks``: how many do one together."""

    role: str
    op: str
    size_bytes: int
    ranks: int


@dataclass
class OperationsAlike:
    """Operations alike: their names, those ranks that do the first one, how often a rank does one in a step, and the dtype.

    ``alone_s`` is what one takes by itself; ``exposed_s`` what of all of them is on the wire while its rank computes nothing,
    of a step, mean over all ranks of the job, added up over operations that move at the same time.
    """

    first: Operation
    group: tuple[int, ...]
    alone_s: float
    names: dict[str, None] = field(default_factory=dict)
    count: float = 0.0
    exposed_s: float = 0.0

    @property
    def dtype(self) -> str:
        """The element type of what they carry."""
        return self.first.payloads[0].dtype


def exposed_operations(result: PolicyResult) -> dict[OperationKey, OperationsAlike]:
    """Return the operations of the last step of a run, by what they have in common; those within one rank are left out."""
    run, begin_end = result.run, result.run.window()
    rank_classes = run.laid.rank_classes
    named = {operation.name: operation for operation in run.laid.operations}
    groups = OperationGroups(result.workload, rank_classes)
    own, moved = spans(run, *begin_end), within(run, *begin_end)
    alike: dict[OperationKey, OperationsAlike] = {}
    for rank_class, members in enumerate(rank_classes.counts):
        weight = members / sum(rank_classes.counts)
        compute = joined([*own[rank_class]["compute"], *own[rank_class]["update"]])
        for row, first, pieces in moved[rank_class]:
            operation = named[row.name]
            ranks = groups.ranks(operation, row.rank_classes)
            if len(ranks) < 2:
                continue
            key = OperationKey(operation.role, operation.op, row.size_bytes, len(ranks))
            if key not in alike:
                alone_s = seconds(result.costs, operation.asked, row.size_bytes, ranks, operation.role)
                alike[key] = OperationsAlike(operation, ranks, alone_s)
            starts = np.maximum(run.times.moved[first + pieces], begin_end[0]).astype(np.float64)
            ends = np.minimum(run.times.end[first + pieces], begin_end[1]).astype(np.float64)
            alike[key].names[row.name] = None
            alike[key].count += weight * len(pieces)
            alike[key].exposed_s += weight * float((ends - starts - covered(compute, starts, ends)).sum()) / PS
    return alike
