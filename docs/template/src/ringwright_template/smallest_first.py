"""Smallest gradients first.

Idea: of the gradients that wait, the smallest is sent first, so that many are done early.
Cost: that of sending whole gradients one after the other.
Knobs: ``at_once`` (1): how many are on their way together.
Holds: all ranks send in the same order; nothing is cut or changed.
Figure: none; an example.
Source: none.
Declines: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ringwright.ground.knobs import Range
from ringwright.model.workload import Queue

if TYPE_CHECKING:
    from ringwright.model.stages import Costs
    from ringwright.model.workload import Workload


def smallest_first(workload: Workload, costs: Costs, *, at_once: Annotated[int, Range(1, 64)] = 1) -> Workload:
    """Return the workload with an order of its gradients: small keys are sent first."""
    by_size = sorted(workload.gradients(), key=lambda each: (each.size_bytes, each.name))
    queue = Queue(
        keys={each.name: place for place, each in enumerate(by_size)},
        windows={each.role: (float(at_once), "operations") for each in by_size},
    )
    return workload.with_policy("smallest-first", queue=queue, boundary="layer")
