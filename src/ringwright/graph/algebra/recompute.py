"""R: what backward needs is computed once more instead of kept, from what is there anyway (or from results that are kept).

The copy must compute the same again: what is drawn must be drawn by a counter. Where the results of operations are kept, the
second pass needs no communication (Oases).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringwright.graph.algebra.editing import StepGraph, times_of
from ringwright.graph.algebra.rule import Refused, rule
from ringwright.graph.algebra.shares import same_as
from ringwright.graph.algebra.waits import Node
from ringwright.model.values import FUSED, KEPT, Change, Value, Work
from ringwright.model.workload import Payload, Task

BACKWARD = ("B", "dO", "dW")


@rule("recompute", "a read of v = a read of a copy of what computed v, its inputs alive")
def recompute(
    graph: StepGraph,
    at: str,
    keep: str | Sequence[str] = (),
    readers: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
) -> Change:
    """Compute a value, and others ``also``, again for readers of the backward pass, from inputs and the values to ``keep``.

    What several of them need is computed again once. Each copy stands right before the first task that reads it.
    """
    wanted = list(dict.fromkeys([at, *listed(also)]))
    kept, asked = set(listed(keep)), listed(readers)
    users: dict[str, Task] = {}
    for name in wanted:
        users |= {task.name: task for task in _users(graph, name, kept, asked)}
    order = _ancestors(graph, wanted, kept)
    names: dict[str, Value] = {}
    for node in order:
        for name in (node.result,) if isinstance(node, Payload) else node.writes:
            names[name] = graph.value(graph.values[name], f"{name}.again")
    for user in users.values():
        mine = {name for name in wanted if name in names}
        reads = tuple((names[name].name if name in mine else name, distance) for name, distance in user.reads)
        graph.change(graph.tasks[user.name], reads=reads)
    _copied(graph, order, names)
    flops = sum(
        (node.work.flops if node.work else 0.0) * times_of(graph, node) for node in order if isinstance(node, Task)
    )
    sent = [node for node in order if isinstance(node, Payload)]
    wire = wire_of(graph, sent)
    operations = sum(times_of(graph, each) for each in sent)
    return Change(wire, operations, flops, sum(each.size_bytes for each in names.values()))


def listed(names: str | Sequence[str]) -> list[str]:
    """Return names that are typed with commas between, or listed."""
    return [each for each in (names.split(",") if isinstance(names, str) else names) if each]


def _users(graph: StepGraph, at: str, kept: set[str], asked: Sequence[str]) -> list[Task]:
    """Return the tasks for which a value is to be computed again; Refused for a value of which that cannot be."""
    if at not in graph.values:
        raise Refused(f"'{at}' is no value", "the name of a value")
    users = [node for node in graph.readers(at) if isinstance(node, Task) and _is_user(node, asked)]
    if not users:
        raise Refused(f"nobody reads {at} in the backward pass", "readers: names of tasks")
    late = [user.name for user in users if any(name == at and distance for name, distance in user.reads)]
    if late:
        raise Refused(f"{late[0]} reads it of an earlier step", "a value that is read in its own step")
    if graph.writer(at) is None or at in kept:
        raise Refused(f"nothing computes {at}", "a value that a task writes, and that is not kept")
    return users


def _is_user(task: Task, asked: Sequence[str]) -> bool:
    return task.name in asked if asked else task.kind in BACKWARD


def wire_of(graph: StepGraph, sent: list[Payload]) -> dict[str, float]:
    """Return the bytes on the wire of operations, all micro-batches, by role."""
    from ringwright.graph.algebra.account import wire_bytes

    wire: dict[str, float] = {}
    for each in sent:
        more = wire_bytes(each, graph.extent(each.axes)) * times_of(graph, each)
        wire[each.role] = wire.get(each.role, 0.0) + more
    return wire


def _ancestors(graph: StepGraph, wanted: Sequence[str], kept: set[str]) -> list[Node]:
    """Return the nodes that compute values from inputs and kept values, in order; Refused for what would differ."""
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
            same_again(node)
            for each, distance in node.reads:
                if not distance:  # what stays from step to step is still the same
                    visit(each)
        order.append(node)

    for name in wanted:
        visit(name)
    return order


def same_again(task: Task) -> None:
    """Refuse a task that does not compute the same when it is done again."""
    _require_same_again(task, task.work or Work())


def _require_same_again(task: Task, work: Work) -> None:
    for meaning, settings, _, _ in work.settings["parts"] if work.meaning == FUSED else ():
        _require_same_again(task, Work(meaning=meaning, settings=settings))
    if work.settings.get("fn") == "dropout" and work.settings.get("counter") is None:
        raise Refused(f"{task.name} draws anew each time", "a counter for what it draws, or keep what it writes")
    if work.settings.get("random"):
        raise Refused(f"{task.name} is not the same when it is done again", "keep what it writes")


def _copied(graph: StepGraph, order: Sequence[Node], names: dict[str, Value]) -> None:
    """Add copies that write the new names, each in the slot of the task that needs it first, right before that.

    First is what runs first: of slots that are listed by turns, such as halves of a backward pass, one runs before the other.
    The last ones come first: of all that stand before one task, each stands before those that were there.
    """
    graph.settle()
    runs = _slots_in_turn(graph)
    at = {name: number for number, name in enumerate(graph.tasks)}
    front, sent = dict(enumerate(graph.tasks.values())), dict[str, int]()
    for node in reversed(order):
        again = _copy(graph, node, names)
        writes = (again.result,) if isinstance(again, Payload) else again.writes
        users = [at[each.name] for name in writes for each in graph.tasks.readers(name)]
        asked = [*users, *(sent[name] for name in writes if name in sent)]
        number = min(asked, key=lambda each: (runs.get((front[each].of, *front[each].slot), 0), each))
        if isinstance(again, Payload):
            graph.payloads[again.name], sent[again.source] = again, number
        else:
            front[number] = graph.add(replace(again, slot=front[number].slot), front[number])
            at[again.name] = number


def _slots_in_turn(graph: StepGraph) -> dict[tuple[str, str, int], int]:
    """Return when the slots of each class run, by class, phase and virtual stage: a number each, the first one first."""
    known: dict[tuple[str, str, int], int] = {}
    for each in graph.classes:
        for phase, chunk, _ in graph.before.schedule(each.name):
            known.setdefault((each.name, phase, chunk), len(known))
    return known


def _copy(graph: StepGraph, node: Node, names: dict[str, Value]) -> Node:
    """Return a copy of a node that reads and writes the new names."""

    def renamed(name: str) -> str:
        return names[name].name if name in names else name

    name = graph.fresh(f"{node.name}.again")
    if isinstance(node, Payload):
        return replace(
            node, name=name, source=renamed(node.source), result=renamed(node.result), producers=(), consumers=()
        )
    again = replace(
        node,
        name=name,
        kind=node.kind if node.kind == "CTRL" else "B",
        reads=tuple((renamed(name), distance) for name, distance in node.reads),
        writes=tuple(renamed(name) for name in node.writes),
    )
    return same_as(again, node)
