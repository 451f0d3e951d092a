"""Passes on parameters of a step before: a pipeline that is never emptied keeps two versions of them (PipeDream-2BW)."""

from __future__ import annotations

from dataclasses import replace

from ringwright.ground.errors import UsageError
from ringwright.model.workload import Workload


def delayed(workload: Workload, steps: int = 1) -> Workload:
    """Return it with passes that read what was updated ``steps`` steps earlier than they do; updates read the latest.

    The sums of a step then have a step more before anybody waits for them, and there is no barrier between steps. What is
    computed is another training: gradients of step k are of the parameters that step k - 2 left.
    UsageError where parameters are gathered for each micro-batch.
    """
    gathered = next((p for p in workload.payloads if p.role in ("dp", "edp") and p.per == "micro-batch"), None)
    if gathered is not None:
        what = f"{gathered.name} brings parameters for each micro-batch: nothing keeps two versions of those"
        raise UsageError(what, where=workload.name, remedy="--parallel without fsdp")
    passes = {task.name for task in workload.tasks if task.per == "micro-batch"}
    tasks = tuple(
        replace(task, reads=tuple((name, distance + steps * bool(distance)) for name, distance in task.reads))
        if task.name in passes
        else task
        for task in workload.tasks
    )
    edges = tuple(
        replace(edge, distance=edge.distance + steps) if edge.distance and edge.dst in passes else edge
        for edge in workload.edges
    )
    payloads = tuple(
        replace(
            each, consumers=tuple((name, far + steps * (bool(far) and name in passes)) for name, far in each.consumers)
        )
        for each in workload.payloads
    )
    made = replace(workload, tasks=tasks, edges=edges, payloads=payloads)
    return replace(made, policy=replace(made.policy, boundary="layer"))
