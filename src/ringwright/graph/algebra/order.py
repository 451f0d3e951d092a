"""E: the order in which a rank runs its tasks and begins its operations. No value changes by it; it must not contradict
who waits for whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringwright.graph.algebra.editing import StepGraph
from ringwright.graph.algebra.rule import Refused, payload_at, rule, task_at
from ringwright.model.values import Change
from ringwright.model.workload import OPS, Payload


@rule("order", "tasks of a class in another order")
def order(
    graph: StepGraph,
    at: str,
    tasks: Sequence[Sequence[object]],
    also: Mapping[str, Sequence[Sequence[object]]] | None = None,
) -> Change:
    """Run the tasks of a class in this order of (task, micro-batch), and those of other classes ``also`` in theirs."""
    orders = {at: tasks, **(also or {})}
    known = {each.name for each in graph.before.classes}
    for of in orders:
        if of not in known:
            raise Refused(f"'{of}' is no class of ranks", f"one of: {', '.join(sorted(known))}")
    listed = {of: tuple((str(name), int(str(batch))) for name, batch in mine) for of, mine in orders.items()}
    graph.policy = graph.with_part("order", order={**(graph.policy.order or {}), **listed})
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


@rule("unbar", "a task that computes nothing is left out: who waited for it waits for what it reads")
def unbar(graph: StepGraph, at: str, also: str | Sequence[str] = ()) -> Change:
    """Leave out a task, and others ``also``, that reads and writes nothing, takes no time, and only holds others back."""
    for name in dict.fromkeys([at, *(also.split(",") if isinstance(also, str) else also)]):
        if not name:
            continue
        task = task_at(graph, name)
        if task.reads or task.writes or task.seconds or task.demands or task.per == "step":
            raise Refused(
                f"{name} does something", "a task of a micro-batch that reads and writes nothing and takes no time"
            )
        graph.drop(task)
    return Change()


@rule("hold", "an operation begins no sooner than tasks and operations have ended")
def hold(graph: StepGraph, at: str, behind: str | Sequence[str]) -> Change:
    """Let an operation wait for tasks and operations whose data it does not need, and share an operation with no other.

    A task is waited for in the step in which the operation runs, another operation where both do the work of the same step.
    """
    payload = payload_at(graph, at, *OPS)
    names = list(dict.fromkeys(behind.split(",") if isinstance(behind, str) else behind))
    if not names or at in names:
        raise Refused("there is nothing else to wait for", "behind: names of tasks and operations")
    graph.change(payload, merges="")
    for name in names:
        node = graph.tasks.get(name) or graph.payloads.get(name)
        if node is None:
            raise Refused(f"'{name}' is no task and no payload", "names of tasks and payloads")
        if node.of != payload.of or (isinstance(node, Payload) and node.per != payload.per):
            raise Refused(f"{name} is of other ranks or micro-batches than {at}", "what the same ranks do as often")
        graph.hold(graph.payloads[at], node)
    return Change()
