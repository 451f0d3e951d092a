"""More experts on a device: smaller groups that exchange tokens, and copies of experts whose gradients are summed."""

from __future__ import annotations

from dataclasses import replace

from ringwright.costs.stages import Costs, seconds
from ringwright.errors import UsageError
from ringwright.schedulers.priority.lina._chunks import EXPERTS, TOKENS, carries_tokens
from ringwright.workload import Mesh, Payload, RankClass, Task, Workload

AXIS, COPIES = "ep", "epx"
GRADIENTS = "edp"  # role of what experts exchange with their copies


def chosen(workload: Workload, costs: Costs, size_bytes: int) -> int:
    """Return how many times the experts of a device are worth having on it: a power of two.

    Doubled while a micro-op of expert work takes less time than one of all-to-all, over all layers; 1 where the workload
    has no gradients of experts, since copies could not be kept equal.
    """
    factor, ranks = 1, workload.mesh.sizes.get(AXIS, 1)
    if not any(each.role == GRADIENTS for each in workload.payloads):
        return 1
    while ranks % (2 * factor) == 0:
        work, wire = micro_ops(packed(workload, factor), costs, size_bytes)
        if work >= wire:
            break
        factor *= 2
    return factor


def micro_ops(workload: Workload, costs: Costs, size_bytes: int) -> tuple[float, float]:
    """Return the seconds of one micro-op of every layer's expert work, and of the all-to-all that brings its tokens."""
    work = wire = 0.0
    for payload in workload.payloads:
        users = [workload.task[name] for name, _ in payload.consumers if workload.task[name].tag == EXPERTS]
        if not users or not carries_tokens(payload):
            continue
        parts = max(1, -(-payload.size_bytes // size_bytes))
        ranks = workload.group(payload.of, payload.axes)
        work += sum(task.seconds for task in users) / parts
        wire += seconds(costs, payload.op, -(-payload.size_bytes // parts), ranks, payload.role)
    return work, wire


def packed(workload: Workload, factor: int) -> Workload:
    """Return it with ``factor`` times the experts on each device; UsageError where the group cannot be divided so.

    The axis of experts becomes copies (outer) and a smaller group of neighbours; tokens per device stay.
    """
    if factor == 1:
        return workload
    ranks = workload.mesh.sizes.get(AXIS, 1)
    if factor < 1 or ranks % factor:
        raise UsageError(f"{factor} times the experts on a device do not divide {ranks} ranks", remedy="a power of two")
    if not any(each.role == GRADIENTS for each in workload.payloads):
        raise UsageError(
            "copies of experts have no gradients to be summed",
            where=workload.name,
            remedy=f"payloads of role {GRADIENTS}, of group size 1 where experts have no copies yet",
        )
    axes: list[tuple[str, int]] = []
    for name, size in workload.mesh.axes:
        axes += [(COPIES, factor), (AXIS, size // factor)] if name == AXIS else [(name, size)]
    of_experts = {name for each in workload.payloads if each.role == GRADIENTS for name in _ends(each)}
    updates = of_experts - {name for each in workload.payloads if each.role != GRADIENTS for name in _ends(each)}
    return replace(
        workload,
        mesh=Mesh(tuple(axes)),
        classes=tuple(_class(each, ranks // factor) for each in workload.classes),
        tasks=tuple(_task(task, factor) if task.name in updates else task for task in workload.tasks),
        payloads=tuple(_payload(each, factor) for each in workload.payloads),
    )


def _ends(payload: Payload) -> set[str]:
    return {*payload.producers, *(name for name, _ in payload.consumers)}


def _class(each: RankClass, ranks: int) -> RankClass:
    if AXIS not in each.at:
        return each
    place = {name: at for name, at in each.at.items() if name != AXIS}
    return replace(each, at={**place, COPIES: each.at[AXIS] // ranks, AXIS: each.at[AXIS] % ranks})


def _task(task: Task, factor: int) -> Task:
    """Make updates longer; the expert work of a device stays: the same tokens, over more experts."""
    return replace(task, seconds=task.seconds * factor) if task.kind == "U" else task


def _payload(each: Payload, factor: int) -> Payload:
    if each.role == TOKENS:
        return each
    axes = tuple(part for name in each.axes for part in ((COPIES, AXIS) if name == AXIS else (name,)))
    if each.role != GRADIENTS:
        return replace(each, axes=axes)
    return replace(
        each, axes=(*axes, COPIES), size_bytes=each.size_bytes * factor, elements=each.elements * factor, factors=None
    )
