"""Backward passes in halves: as the workload has them, or whole ones split by a share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringwright.model.workload import Workload

Todo = tuple[str, str, Mapping[str, Any]]


def whole_passes(workload: Workload) -> list[str]:
    """Return the backward tasks of micro-batches that compute both gradients, as far as nobody knows what else they do."""
    mine = (task for task in workload.tasks if task.kind == "B" and task.per == "micro-batch" and task.seconds)
    return [task.name for task in mine if not (task.work and task.work.meaning)]


def in_halves(workload: Workload, share: float) -> list[Todo]:
    """Return the rules that split whole backward passes which make gradients; nothing where they are split already."""
    if any(task.kind == "dW" for task in workload.tasks):
        return []
    value = workload.value
    sources = {each.producers for each in workload.gradients() if len(each.producers) == 1}
    makers = {name for (name,) in sources}
    for task in workload.tasks:
        if any(value[name].kind == "gradient" for name in task.writes):
            makers.add(task.name)
    return [("split-backward", name, {"share": share}) for name in whole_passes(workload) if name in makers]
