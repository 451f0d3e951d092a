"""X: work moves over the end of a step: it is done one step later, by values that are kept, and a last step flushes it.

Who reads what it makes must be of a later step already: between the end of a step and its reader lies the time that it may take.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.graph.algebra.editing import StepGraph, times_of
from ringwright.graph.algebra.rule import Refused, rule
from ringwright.graph.algebra.waits import Node
from ringwright.model.values import Change
from ringwright.model.workload import Payload, Task


@rule("next-step", "work is done at the beginning of the next step, before whoever reads it there")
def next_step(graph: StepGraph, at: str, through: str | Sequence[str] = ()) -> Change:
    """Do the work of a task or operation, and of all of ``through``, one step later; the barrier between steps goes."""
    names = dict.fromkeys([at, *(through.split(",") if isinstance(through, str) and through else through)])
    held: list[Node] = []
    for name in names:
        node: Node | None = graph.tasks.get(name) or graph.payloads.get(name)
        if node is None:
            raise Refused(f"'{name}' is no task and no payload", "names of tasks and payloads")
        if node.per != "step":
            raise Refused(f"{name} runs once a micro-batch", "what runs once a step")
        held.append(node)
    inside = {each.name for each in held}
    for node in held:
        for name in (node.result,) if isinstance(node, Payload) else node.writes:
            _sooner(graph, node, name, inside)
    broken = graph.waits.retime(inside)
    if broken:
        raise Refused(broken, "move it too")
    kept = 0
    for node in held:
        kept += _later(graph, node, inside)
    graph.policy = graph.with_part("next-step", boundary="layer")
    return Change({}, 0, 0.0, kept)


def _sooner(graph: StepGraph, node: Node, name: str, inside: set[str]) -> None:
    """Let those who read a value in a later step read it one step sooner."""
    for reader in graph.readers(name):
        if reader.name in inside:
            continue
        if isinstance(reader, Payload) or any(each == name and distance < 1 for each, distance in reader.reads):
            raise Refused(f"{reader.name} reads {name} of {node.name} in the same step", f"move {reader.name} too")
        reads = tuple((each, distance - (each == name)) for each, distance in reader.reads)
        graph.change(reader, reads=reads)


def _later(graph: StepGraph, node: Node, inside: set[str]) -> int:
    """Let a node read what it needs of the step before, and return the bytes that are kept for it."""
    if isinstance(node, Payload):
        writer = graph.writer(node.source)
        if writer is not None and writer.name in inside:
            graph.change(node, lag=node.lag + 1)
            return 0
        value = graph.values[node.source]
        made = graph.value(value, f"{value.name}.kept", per="step")
        copy = graph.copying(f"{node.name}.kept", node, "copy", {}, [value], [made])
        graph.change(copy, reads=((value.name, 1),), lag=node.lag + 1)
        graph.change(node, source=made.name, lag=node.lag + 1)
        return value.size_bytes * times_of(graph, node)
    reads, kept = [], 0
    for name, distance in node.reads:
        writer = graph.writer(name)
        moves = writer is not None and writer.name in inside
        reads.append((name, distance if moves else distance + 1))
        kept += 0 if moves else graph.values[name].size_bytes
    assert isinstance(node, Task)  # noqa: S101 - a Node is one or the other
    graph.change(node, reads=tuple(reads), lag=node.lag + 1)
    return kept
