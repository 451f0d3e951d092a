"""The order of a forward pass that branches: tasks whose parameters arrive first run first, as long as that shortens the pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ringwright.model.workload import Payload, Task, Workload
from ringwright.schedulers.order import GRADIENTS, released
from ringwright.schedulers.priority._fusion import completions

MOST_ROUNDS = 20


def relisted(workload: Workload, seconds: Callable[[Payload], float]) -> Workload:
    """Return the workload with the forward tasks of each class in the order whose end the optimal sending makes least.

    Starts from the order listed and keeps it where no round is better; a chain has one order only. Only steps of one
    micro-batch and one slot of forward tasks are listed anew (where slots alternate, their order is the pipeline's), and only
    where edges say what waits for what: from one first task, without payloads between forward tasks.
    """
    if workload.micro_batches > 1:
        return workload
    ready = released(workload)
    for each in workload.classes:
        forward = [task for task in workload.tasks if task.of == each.name and task.kind == "F"]
        if (
            len({task.slot for task in forward}) != 1
            or not _branches(workload, forward)
            or _exchanges(workload, forward)
        ):
            continue
        sent = [
            payload
            for payload in workload.payloads
            if payload.of == each.name and payload.per == "step" and payload.role in GRADIENTS
        ]
        jobs = {payload.name: (ready[payload.name], seconds(payload)) for payload in sent}
        best_order = iter(_best(workload, forward, jobs))
        tasks = tuple(next(best_order) if task in forward else task for task in workload.tasks)
        workload = replace(workload, tasks=tasks)
    return workload


def _branches(workload: Workload, forward: Sequence[Task]) -> bool:
    """Say whether some task need not wait for the one listed before it, and all follow from one first task."""
    before = _before(workload, forward)
    firsts = [name for name, waits in before.items() if not waits]
    return len(firsts) == 1 and any(one.name not in before[other.name] for one, other in pairwise(forward))


def _exchanges(workload: Workload, forward: Sequence[Task]) -> bool:
    names = {task.name for task in forward}
    return any(names & set(payload.producers) for payload in workload.payloads)


def _best(workload: Workload, forward: list[Task], jobs: Mapping[str, tuple[float, float]]) -> list[Task]:
    needs, before = _needs(workload, forward, jobs), _before(workload, forward)
    paths = _paths(forward, before)
    best, (least, ends) = forward, _judged(forward, needs, jobs)
    for _ in range(MOST_ROUNDS):
        available = {task.name: max((ends[name] for name in needs[task.name]), default=0.0) for task in forward}
        tried = _listed(best, before, available, paths)
        value, ends = _judged(tried, needs, jobs)
        if value >= least * (1 - 1e-9):
            return best
        best, least = tried, value
    return best


def _judged(
    order: Sequence[Task], needs: Mapping[str, set[str]], jobs: Mapping[str, tuple[float, float]]
) -> tuple[float, dict[str, float]]:
    """Return when forward ends in this order under the optimal sending, and when each payload is back."""
    rest, left = dict.fromkeys(jobs, 0.0), 0.0
    for task in reversed(order):
        left += task.seconds
        rest.update(dict.fromkeys(needs[task.name], left))
    names = list(jobs)
    ends = completions([(*jobs[name], rest[name]) for name in names])
    back = dict(zip(names, ends, strict=True))
    return max((back[name] + rest[name] for name in names), default=0.0), back


def _listed(
    order: Sequence[Task], before: Mapping[str, set[str]], available: Mapping[str, float], paths: Mapping[str, float]
) -> list[Task]:
    """Return the tasks by when their parameters are back, of equals the one with the longest path to the end first."""
    tasks: list[Task] = []
    done: set[str] = set()
    now, left = 0.0, list(order)
    while left:
        could = [task for task in left if before[task.name] <= done]
        task = min(could, key=lambda each: (max(available[each.name], now), -paths[each.name]))
        now = max(now, available[task.name]) + task.seconds
        tasks.append(task)
        done.add(task.name)
        left.remove(task)
    return tasks


def _needs(workload: Workload, forward: Sequence[Task], jobs: Mapping[str, object]) -> dict[str, set[str]]:
    """Return the payloads that each forward task waits for itself, directly or through an update."""
    needs: dict[str, set[str]] = {task.name: set() for task in forward}
    updated: dict[str, set[str]] = {}
    for name in jobs:
        for task, _ in workload.payload[name].consumers:
            if task in needs:
                needs[task].add(name)
            updated.setdefault(task, set()).add(name)
    for edge in workload.edges:
        if edge.dst in needs and edge.src in updated and edge.src not in needs:
            needs[edge.dst] |= updated[edge.src]
    return needs


def _before(workload: Workload, forward: Sequence[Task]) -> dict[str, set[str]]:
    before: dict[str, set[str]] = {task.name: set() for task in forward}
    for edge in workload.edges:
        if edge.dst in before and edge.src in before and edge.distance == 0:
            before[edge.dst].add(edge.src)
    return before


def _paths(forward: Sequence[Task], before: Mapping[str, set[str]]) -> dict[str, float]:
    """Return the longest path from each task to the end, its own seconds included; ``forward`` is in a possible order."""
    lengths = {task.name: 0.0 for task in forward}
    for task in reversed(forward):
        lengths[task.name] += task.seconds
        for name in before[task.name]:
            lengths[name] = max(lengths[name], lengths[task.name])
    return lengths
