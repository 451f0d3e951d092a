"""R: what backward needs is computed once more instead of kept, from what is there anyway (or from results that are kept).

The copy must compute the same again: what is drawn must be drawn by a counter. Where the results of operations are kept, the
second pass needs no communication (Oases).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringwright.algebra.editing import Node, StepGraph, times_of
from ringwright.algebra.rule import Refused, rule
from ringwright.values import FUSED, KEPT, Change, Value, Work
from ringwright.workload import Payload, Task

BACKWARD = ("B", "dO", "dW")


@rule("recompute", "a read of v = a read of a copy of what computed v, its inputs alive")
def recompute(graph: StepGraph, at: str, keep: str | Sequence[str] = (), readers: str | Sequence[str] = ()) -> Change:
    """Compute a value again for its readers of the backward pass, from inputs and the values to ``keep``."""
    value = graph.values.get(at)
    if value is None:
        raise Refused("it is no value", "the name of a value")
    kept = {each for each in (keep.split(",") if isinstance(keep, str) else keep) if each}
    asked = [each for each in (readers.split(",") if isinstance(readers, str) else readers) if each]
    users = [node for node in graph.readers(at) if isinstance(node, Task) and _is_user(node, asked)]
    if not users:
        raise Refused("nobody reads it in the backward pass", "readers: names of tasks")
    late = [user.name for user in users if any(name == at and distance for name, distance in user.reads)]
    if late:
        raise Refused(f"{late[0]} reads it of an earlier step", "a value that is read in its own step")
    if graph.writer(at) is None or at in kept:
        raise Refused("nothing computes it", "a value that a task writes, and that is not kept")
    order = _ancestors(graph, value, kept)
    names: dict[str, Value] = {}
    for node in order:
        for name in (node.result,) if isinstance(node, Payload) else node.writes:
            names[name] = graph.value(graph.values[name], f"{name}.again")
    for node in order:
        _copy(graph, node, names, users[0])
    for user in users:
        reads = tuple((names[at].name if name == at else name, distance) for name, distance in user.reads)
        graph.change(graph.tasks[user.name], reads=reads)
    flops = sum(
        (node.work.flops if node.work else 0.0) * times_of(graph, node) for node in order if isinstance(node, Task)
    )
    sent = [node for node in order if isinstance(node, Payload)]
    wire = _wire(graph, sent)
    operations = sum(times_of(graph, each) for each in sent)
    return Change(wire, operations, flops, sum(each.size_bytes for each in names.values()))


def _is_user(task: Task, asked: Sequence[str]) -> bool:
    return task.name in asked if asked else task.kind in BACKWARD


def _wire(graph: StepGraph, sent: list[Payload]) -> dict[str, float]:
    from ringwright.algebra.account import wire_bytes

    wire: dict[str, float] = {}
    for each in sent:
        more = wire_bytes(each, graph.extent(each.axes)) * times_of(graph, each)
        wire[each.role] = wire.get(each.role, 0.0) + more
    return wire


def _ancestors(graph: StepGraph, value: Value, kept: set[str]) -> list[Node]:
    """Return the nodes that compute a value from inputs and kept values, in order; Refused for what would differ."""
    order: list[Node] = []
    seen = set[str]()

    def visit(name: str) -> None:
        node = graph.writer(name)
        if node is None or name in kept or node.name in seen:
            return
        seen.add(node.name)
        if isinstance(node, Payload):
            visit(node.source)
        else:
            earlier = (name for name, distance in node.reads if distance and graph.writer(name) is not None)
            if any(graph.values[name].kind not in KEPT for name in earlier):
                raise Refused(f"{node.name} reads a value of an earlier step", f"keep: a value behind {node.name}")
            _is_same_again(node)
            for each, distance in node.reads:
                if not distance:  # what stays from step to step is still the same
                    visit(each)
        order.append(node)

    visit(value.name)
    return order


def _is_same_again(task: Task) -> None:
    _require_same_again(task, task.work or Work())


def _require_same_again(task: Task, work: Work) -> None:
    for meaning, settings, _, _ in work.settings["parts"] if work.meaning == FUSED else ():
        _require_same_again(task, Work(meaning=meaning, settings=settings))
    if work.settings.get("fn") == "dropout" and work.settings.get("counter") is None:
        raise Refused(f"{task.name} draws anew each time", "a counter for what it draws, or keep what it writes")
    if work.settings.get("random"):
        raise Refused(f"{task.name} is not the same when it is done again", "keep what it writes")


def _copy(graph: StepGraph, node: Node, names: dict[str, Value], user: Task) -> None:
    """Add a copy of a node that writes the new names, in the slot of the task that needs it."""

    def renamed(name: str) -> str:
        return names[name].name if name in names else name

    if isinstance(node, Payload):
        name = graph.fresh(f"{node.name}.again")
        graph.payloads[name] = replace(
            node, name=name, source=renamed(node.source), result=renamed(node.result), producers=(), consumers=()
        )
        return
    work = node.work or Work()
    if not work.meaning:
        work = replace(work, settings={**work.settings, "same_as": str(work.settings.get("same_as", node.name))})
    elif work.settings.get("fn") == "dropout":
        work = replace(work, settings={**work.settings})
    again = replace(
        node,
        name=graph.fresh(f"{node.name}.again"),
        kind=node.kind if node.kind == "CTRL" else "B",
        slot=user.slot,
        reads=tuple((renamed(name), distance) for name, distance in node.reads),
        writes=tuple(renamed(name) for name in node.writes),
        work=work,
    )
    graph.add(again, graph.tasks[user.name])
