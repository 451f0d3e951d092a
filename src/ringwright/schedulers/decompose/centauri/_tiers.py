"""Centauri's layer tier: a pass with weight gradients as fillers; and its model tier: what is fetched and summed when."""

from __future__ import annotations

from collections.abc import Iterator

from ringwright.graph.algebra import rewritten
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Payload, Task, Workload
from ringwright.schedulers.decompose.centauri._plan import Todo
from ringwright.schedulers.search import list_scheduled


# ------------------------------------------------------------------------------------------------------------- layers
def ordered(workload: Workload, costs: Costs) -> Workload:
    """Return the workload with each pass of a class in the order of a list schedule by the longest way to its end.

    One compute stream, and one for the operations of each group: weight gradients fill the gaps of what the pass waits for.
    """
    todo: Todo = []
    for each in workload.classes:
        line = workload.line(each.name)
        turn = {
            name: at for slot in _slots(workload, each.name) for at, name in enumerate(_listed(workload, costs, slot))
        }
        runs: list[list[tuple[str, int]]] = []
        for name, batch in line:
            slot = (workload.task[name].slot, batch)
            if not runs or (workload.task[runs[-1][0][0]].slot, runs[-1][0][1]) != slot:
                runs.append([])
            runs[-1].append((name, batch))
        new = [node for run in runs for node in sorted(run, key=lambda node: turn[node[0]])]
        if new != line:
            todo.append(("order", each.name, {"tasks": new}))
    return rewritten(workload, todo) if todo else workload


def _slots(workload: Workload, of: str) -> list[list[Task]]:
    """Return the tasks of each slot of a class, in the order of its line."""
    slots: dict[tuple[str, int], dict[str, Task]] = {}
    for name, _ in workload.line(of):
        task = workload.task[name]
        slots.setdefault(task.slot, {})[name] = task
    return [list(tasks.values()) for tasks in slots.values()]


def _listed(workload: Workload, costs: Costs, tasks: list[Task]) -> list[str]:
    """Return the names of a slot's tasks in the order in which a list schedule starts them."""
    mine = {task.name: task for task in tasks}
    times = {task.name: task.seconds for task in tasks}
    on = {task.name: task.stream if task.kind != "CTRL" else f"{task.name} alone" for task in tasks}
    after: dict[str, list[str]] = {task.name: [] for task in tasks}
    for edge in workload.edges:
        if not edge.distance and edge.src in mine and edge.dst in mine:
            after[edge.dst].append(edge.src)
    for payload in workload.payloads:
        made, used = _ends(payload, mine)
        if not made or payload.lag:
            continue
        name = f"{payload.name} sent"
        ranks = workload.group(payload.of, payload.axes)
        times[name] = (
            0.0
            if payload.op in ("send-recv", "shift")
            else seconds(costs, payload.asked, payload.size_bytes, ranks, payload.role)
        )
        on[name], after[name] = f"{payload.role} {payload.axes}", made
        for user in used:
            after[user].append(name)
    starts = list_scheduled(times, after, on).starts
    return sorted(mine, key=lambda name: starts[name])


def _ends(payload: Payload, mine: dict[str, Task]) -> tuple[list[str], list[str]]:
    return [n for n in payload.producers if n in mine], [
        n for n, distance in payload.consumers if n in mine and not distance
    ]


# -------------------------------------------------------------------------------------------------------------- model
def summed(workload: Workload) -> Todo:
    """Return what adds gradients up over micro-batches and sends them once a step, where they are sent in each."""
    if workload.micro_batches < 2:
        return []
    readers = {name: task for task in workload.tasks for name, _ in task.reads}
    return [
        ("accumulate", each.name, {})
        for each in workload.payloads
        if each.op in ("all-reduce", "reduce-scatter")
        and each.per == "micro-batch"
        and each.result in workload.value
        and workload.value[each.result].per == "step"
        and workload.value[each.source].per == "micro-batch"
        and each.source not in readers
    ]


def fetched(workload: Workload, ahead: int) -> Todo:
    """Return what lets each gather that is held back begin when the layer of the gather ``ahead`` before it does."""
    todo: Todo = []
    for each in workload.classes:
        line = [
            name
            for name in dict.fromkeys(name for name, _ in workload.line(each.name))
            if workload.task[name].kind != "CTRL"
        ]
        turn = {name: at for at, name in enumerate(line)}
        by_slot: dict[tuple[str, int], list[tuple[int, Payload]]] = {}
        for payload, first in _held(workload, each.name, turn):
            by_slot.setdefault(workload.task[line[first]].slot, []).append((first, payload))
        for listed in by_slot.values():
            firsts = sorted({first for first, _ in listed})
            for first, payload in listed:
                at = firsts.index(first) - ahead
                begins = firsts[max(at, 0)] - 1
                if begins < 0 or workload.task[line[begins]].per != payload.per:
                    continue
                if payload.producers != (line[begins],):
                    todo.append(("begin-behind", payload.name, {"task": line[begins]}))
    return todo


def _held(workload: Workload, of: str, turn: dict[str, int]) -> Iterator[tuple[Payload, int]]:
    """Yield gathers that wait for a task which does not make what they send, with the turn of their first consumer."""
    writer = {name: task.name for task in workload.tasks for name in task.writes}
    for payload in workload.payloads:
        if payload.of != of or payload.op != "all-gather" or payload.per != "micro-batch" or not payload.source:
            continue
        used = [turn[name] for name, distance in payload.consumers if name in turn and not distance]
        free = [name for name in payload.producers if name != writer.get(payload.source)]
        if used and free and workload.task[free[0]].kind != "CTRL":
            yield payload, min(used)
