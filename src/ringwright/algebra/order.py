"""E: the order in which a rank runs its tasks. No value changes by it; it must not contradict who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.algebra.editing import StepGraph
from ringwright.algebra.rule import Refused, rule, task_at
from ringwright.values import Change


@rule("order", "tasks of a class in another order")
def order(graph: StepGraph, at: str, tasks: Sequence[Sequence[object]]) -> Change:
    """Run the tasks of a class in this order of (task, micro-batch)."""
    if at not in {each.name for each in graph.before.classes}:
        raise Refused("it is no class of ranks", f"one of: {', '.join(each.name for each in graph.before.classes)}")
    listed = tuple((str(name), int(str(batch))) for name, batch in tasks)
    graph.policy = graph.with_part("order", order={**(graph.policy.order or {}), at: listed})
    return Change()


@rule("move", "a task runs sooner or later: right before another one, micro-batch by micro-batch")
def move(graph: StepGraph, at: str, before: str) -> Change:
    """Run a task right before another one of its class: delay a weight gradient, advance what another waits for."""
    task, other = task_at(graph, at), task_at(graph, before)
    if task.of != other.of or "step" in (task.per, other.per) or at == before:
        raise Refused(f"{before} is no other task of its class and micro-batches", "two tasks of one class")
    line = [each for each in graph.before.line(task.of) if each[0] != at]
    moved = []
    for name, batch in line:
        if name == before:
            moved.append((at, batch))
        moved.append((name, batch))
    graph.policy = graph.with_part("order", order={**(graph.policy.order or {}), task.of: tuple(moved)})
    return Change()
