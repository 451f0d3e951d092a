"""Expert packing: more experts on a device, so groups that exchange tokens get smaller, and copies whose gradients are summed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Mesh, Payload, RankClass, Task, Workload
from ringwright.schedulers.priority.lina._chunks import EXPERTS, TOKENS, carries_tokens
from ringwright.schedulers.priority.lina._memory import free_bytes, held_bytes

AXIS, COPIES = "ep", "epx"
EXPERT_GRADIENTS = "edp"  # role of what experts exchange with their copies


@dataclass(frozen=True)
class Packing:
    """How many times the experts a device gets, and why so many and not more."""

    factor: int
    why: str


def decided(workload: Workload, costs: Costs, size_bytes: int, packing: int = 0, memory_gb: float = 0.0) -> Packing:
    """Return ``packing``, or where it is 0 what the rule says; InfeasibleError where a device cannot hold what was asked for."""
    free = free_bytes(workload, memory_gb)
    if not packing:
        return chosen(workload, costs, size_bytes, free)
    held = held_bytes(workload, packing, experts=EXPERT_GRADIENTS)
    if packing > 1 and held > free:
        raise InfeasibleError(
            f"lina: {packing} times the experts are {_gb(held)} of parameters, gradients and states on a device with"
            f" {_gb(free)} for them",
            where=workload.name,
            remedy="packing=0 takes what fits; memory_gb=... says what a device holds",
        )
    return Packing(packing, "as asked")


def chosen(workload: Workload, costs: Costs, size_bytes: int, free: float = float("inf")) -> Packing:
    """Return the packing factor: by how many times to multiply the experts of a device, a power of two.

    Doubled while a micro-op of expert work takes less time than one of all-to-all, over all layers, and while a device
    with ``free`` bytes holds them; 1 where the workload has no gradients of experts, since copies could not be kept equal.
    """
    factor, ranks = 1, workload.mesh.sizes.get(AXIS, 1)
    if not any(each.role == EXPERT_GRADIENTS for each in workload.payloads):
        return Packing(1, "no gradients of experts are summed, by which copies would be kept equal")
    while ranks % (2 * factor) == 0:
        work, wire = micro_ops(packed(workload, factor), costs, size_bytes)
        if work >= wire:
            return Packing(
                factor, f"a micro-op is {work * 1e3:.3g} ms of expert work, {wire * 1e3:.3g} ms of all-to-all"
            )
        held = held_bytes(workload, 2 * factor, experts=EXPERT_GRADIENTS)
        if held > free:
            return Packing(factor, f"{2 * factor} times the experts hold {_gb(held)}, a device {_gb(free)}")
        factor *= 2
    return Packing(factor, f"no more of them divide {ranks} ranks")


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:,.1f} GB"


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
        wire += seconds(costs, payload.asked, -(-payload.size_bytes // parts), ranks, payload.role)
    return work, wire


def packed(workload: Workload, factor: int) -> Workload:
    """Return the workload with ``factor`` times the experts on each device; UsageError where the group cannot be divided so.

    The axis of experts becomes copies (outer) and a smaller group of neighbours; tokens per device stay.
    """
    if factor == 1:
        return workload
    ranks = workload.mesh.sizes.get(AXIS, 1)
    if factor < 1 or ranks % factor:
        raise UsageError(f"{factor} times the experts on a device do not divide {ranks} ranks", remedy="a power of two")
    if not any(each.role == EXPERT_GRADIENTS for each in workload.payloads):
        raise UsageError(
            "copies of experts have no gradients to be summed",
            where=workload.name,
            remedy=f"payloads of role {EXPERT_GRADIENTS}, of group size 1 where experts have no copies yet",
        )
    workload = workload.without_values()  # they lie on the axes as they were
    axes: list[tuple[str, int]] = []
    for name, size in workload.mesh.axes:
        axes += [(COPIES, factor), (AXIS, size // factor)] if name == AXIS else [(name, size)]
    of_experts = {name for each in workload.payloads if each.role == EXPERT_GRADIENTS for name in _ends(each)}
    updates = of_experts - {name for each in workload.payloads if each.role != EXPERT_GRADIENTS for name in _ends(each)}
    scattered = [each for each in workload.payloads if each.role == EXPERT_GRADIENTS and each.op == "reduce-scatter"]
    shared = {name for each in scattered for name in _ends(each)}  # over as many more ranks as there are more experts
    return replace(
        workload,
        mesh=Mesh(tuple(axes)),
        classes=tuple(_class(each, ranks // factor) for each in workload.classes),
        tasks=tuple(_task(task, factor) if task.name in updates - shared else task for task in workload.tasks),
        payloads=tuple(_payload(each, factor) for each in workload.payloads),
    )


def _ends(payload: Payload) -> set[str]:
    return {*payload.producers, *(name for name, _ in payload.consumers)}


def _class(each: RankClass, ranks: int) -> RankClass:
    if AXIS not in each.at:
        return each
    coordinates = {name: at for name, at in each.at.items() if name != AXIS}
    return replace(each, at={**coordinates, COPIES: each.at[AXIS] // ranks, AXIS: each.at[AXIS] % ranks})


def _task(task: Task, factor: int) -> Task:
    """Make updates longer; the expert work of a device stays: the same tokens, over more experts."""
    return replace(task, seconds=task.seconds * factor) if task.kind == "U" else task


def _payload(each: Payload, factor: int) -> Payload:
    if each.role == TOKENS:
        return each
    axes = tuple(part for name in each.axes for part in ((COPIES, AXIS) if name == AXIS else (name,)))
    if each.role != EXPERT_GRADIENTS:
        return replace(each, axes=axes)
    return replace(
        each, axes=(*axes, COPIES), size_bytes=each.size_bytes * factor, elements=each.elements * factor, factors=None
    )
