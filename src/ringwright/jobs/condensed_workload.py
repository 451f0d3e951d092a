"""A workload with one task a pass: what its ranks compute and exchange in line, one after another, added up beforehand.

Exact where tensor and expert parallel exchanges stand in line with compute and gradients travel when all are made, as
Megatron-LM and DeepSpeed's pipelines do without overlap; and small enough to try hundreds of jobs. Of a job that hides exchanges
what is left is added up: of gathers and scatters beside products what a loop of blocks does not save (Megatron's
``tp_comm_overlap``), of exchanges of experts what one micro-batch's forward and another's backward pass do not cover between them
(``overlap_moe_expert_parallel_comm``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace

from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Edge, Payload, RankClass, Task, Workload
from ringwright.schedulers.decompose.collective_einsum_overlap import saved_s

IN_LINE = ("tp", "ep", "cp")
BESIDE = ".again"  # gathered once more for the weights' gradient, while that of the inputs is computed


def condensed(workload: Workload, costs: Costs, overlap: Collection[str] = ()) -> Workload:
    """Return the workload with a task per slot; as it is where parameters travel within a pass (fully sharded).

    ``overlap``: roles whose exchanges run beside compute, of ``tp`` and ``ep``.
    """
    if any(each.per == "micro-batch" and each.role in ("dp", "edp") for each in workload.payloads):
        return workload
    saved = saved_s(workload, costs) if "tp" in overlap else {}
    workload = workload.without_values()
    slots = {task.name: f"{task.of}.{task.slot[0]}{task.slot[1]}" for task in workload.tasks}
    taking: dict[str, float] = defaultdict(float)
    beside: dict[str, float] = defaultdict(float)
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
            into = beside if each.role == "ep" and "ep" in overlap else taking
            into[slots[each.producers[0]]] += costed[key] - saved.get(each.name, 0.0)
    _uncovered(workload, slots, taking, beside)
    return replace(
        workload,
        tasks=_tasks(workload, slots, taking),
        edges=_edges(workload, slots),
        payloads=_payloads(others, slots),
    )


def _uncovered(workload: Workload, slots: dict[str, str], taking: dict[str, float], beside: dict[str, float]) -> None:
    """Add to each slot its share of what exchanges take beyond the compute of both passes, one micro-batch's and another's."""
    passes: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
    for task in workload.tasks:
        if task.slot[0] in ("F", "B"):
            passes[task.of, task.slot[1]][slots[task.name]] = None
    for both in passes.values():
        sent, computed = sum(beside[slot] for slot in both), sum(taking[slot] for slot in both)
        for slot in both:
            if sent:
                taking[slot] += beside[slot] * max(0.0, 1.0 - computed / sent)


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
