"""A workload with one task a pass: what its ranks compute and exchange in line, one after another, added up beforehand.

Exact where tensor and expert parallel exchanges stand in line with compute and gradients travel when all are made, as
Megatron-LM and DeepSpeed's pipelines do without overlap; and small enough to try hundreds of jobs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from ringwright.costs.stages import Costs, seconds
from ringwright.workload import Edge, Payload, RankClass, Task, Workload

IN_LINE = ("tp", "ep", "cp")
BESIDE = ".again"  # gathered once more for the weights' gradient, while that of the inputs is computed


def condensed(workload: Workload, costs: Costs) -> Workload:
    """Return the workload with a task per slot; as it is where parameters travel within a pass (fully sharded)."""
    if any(each.per == "micro-batch" and each.role in ("dp", "edp") for each in workload.payloads):
        return workload
    workload = workload.without_values()
    slots = {task.name: f"{task.of}.{task.slot[0]}{task.slot[1]}" for task in workload.tasks}
    taking: dict[str, float] = defaultdict(float)
    for task in workload.tasks:
        taking[slots[task.name]] += task.seconds
    classes = {each.name: each for each in workload.classes}
    costed: dict[tuple[str, int, str, str], float] = {}
    others: list[Payload] = []
    for each in workload.payloads:
        if each.per != "micro-batch" or each.role not in IN_LINE:
            others.append(each)
        elif not each.name.endswith(BESIDE):
            key = (each.op, each.size_bytes, each.role, each.of)
            if key not in costed:
                costed[key] = _alone(workload, costs, each, classes[each.of])
            taking[slots[each.producers[0]]] += costed[key]
    return replace(
        workload,
        tasks=_tasks(workload, slots, taking),
        edges=_edges(workload, slots),
        payloads=_payloads(others, slots),
    )


def _alone(workload: Workload, costs: Costs, payload: Payload, of: RankClass) -> float:
    ranks = workload.mesh.group(payload.axes, workload.mesh.rank(of.at))
    return seconds(costs, payload.op, payload.size_bytes, ranks, payload.role)


def _tasks(workload: Workload, slots: dict[str, str], taking: dict[str, float]) -> tuple[Task, ...]:
    tasks: dict[str, Task] = {}
    for task in workload.tasks:
        name = slots[task.name]
        kind = "B" if task.kind in ("dO", "dW") else task.kind
        tasks.setdefault(name, replace(task, name=name, kind=kind, seconds=taking[name], tag=""))
    return tuple(tasks.values())


def _edges(workload: Workload, slots: dict[str, str]) -> tuple[Edge, ...]:
    moved = (Edge(slots[edge.src], slots[edge.dst], edge.distance) for edge in workload.edges)
    within = {(payload.producers, payload.consumers) for payload in workload.payloads if payload.role in IN_LINE}
    joined = (
        Edge(slots[src], slots[dst], distance)
        for producers, consumers in within
        for src in producers
        for dst, distance in consumers
    )
    kept = (edge for edge in (*moved, *joined) if edge.src != edge.dst or edge.distance)
    return tuple(dict.fromkeys(kept))


def _payloads(payloads: list[Payload], slots: dict[str, str]) -> tuple[Payload, ...]:
    """Join what has the same ends; its bytes add up."""
    joined: dict[tuple[object, ...], Payload] = {}
    for each in payloads:
        producers = tuple(dict.fromkeys(slots[name] for name in each.producers))
        consumers = tuple(dict.fromkeys((slots[name], distance) for name, distance in each.consumers))
        key = (each.of, each.op, each.role, each.per, each.peer, each.joint, producers, consumers)
        before = joined.get(key)
        joined[key] = replace(
            before or each,
            producers=producers,
            consumers=consumers,
            size_bytes=each.size_bytes + (before.size_bytes if before else 0),
            elements=each.elements + (before.elements if before else 0),
        )
    return tuple(joined.values())
