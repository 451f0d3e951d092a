"""O of micro-batches: what all of them gather alike is gathered once, and a sum over them is summed up before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringwright.graph.algebra.editing import COPIES, StepGraph
from ringwright.graph.algebra.rule import Refused, payload_at, rule
from ringwright.model.stages import VOLUME
from ringwright.model.values import Change
from ringwright.model.workload import Payload, Task

SUMS = ("reduce-scatter", "all-reduce")


@rule("once", "AG(x) for every micro-batch = AG(x); sum of RS(g) over micro-batches = RS(sum of g)")
def once(graph: StepGraph, at: str, behind: str | Sequence[str] = ()) -> Change:
    """Do an operation of every micro-batch once a step; a gather begins behind these tasks, or where it began."""
    payload = payload_at(graph, at, "all-gather", *SUMS)
    if payload.per != "micro-batch":
        raise Refused("it is done once a step", "what is done for every micro-batch")
    held = _summed(graph, payload) if payload.op in SUMS else _gathered(graph, payload)
    names = [name for name in (behind.split(",") if isinstance(behind, str) else behind) if name]
    unknown = [name for name in names if name not in graph.tasks or graph.tasks[name].of != payload.of]
    if unknown:
        raise Refused(f"{unknown[0]} is no task of its class of ranks", "behind: names of tasks")
    if names:
        graph.waits.wait(payload, names)
    graph.change(payload, per="step")
    times, ranks = graph.before.micro_batches - 1, graph.extent(payload.axes)
    volume = VOLUME[payload.op](ranks) * payload.size_bytes
    return Change({payload.role: -times * volume}, -times, 0.0, held)


def _gathered(graph: StepGraph, payload: Payload) -> int:
    """Let all micro-batches read what is gathered once, from what does not differ between them."""
    source, result = graph.values[payload.source], graph.values[payload.result]
    copy = graph.writer(source.name)
    if isinstance(copy, Task) and copy.kind == COPIES and _is_alike(graph, copy):
        graph.change(copy, per="step")
        source = graph.values[source.name] = replace(source, per="step")
    if source.per != "step":
        raise Refused(f"every micro-batch has a {source.name} of its own", "a gather of what is there once a step")
    if any(isinstance(node, Payload) for node in graph.readers(result.name)):
        raise Refused(f"{result.name} is sent on", "a gather that tasks read")
    graph.values[result.name] = replace(result, per="step")
    return result.size_bytes


def _is_alike(graph: StepGraph, copy: Task) -> bool:
    """Whether every micro-batch copies the same, though each is told to."""
    return all(graph.values[name].per == "step" for name, _ in copy.reads)


def _summed(graph: StepGraph, payload: Payload) -> int:
    """Let the gradients of all micro-batches be added up before they are sent."""
    source, result = graph.values[payload.source], graph.values[payload.result]
    writer = graph.writer(source.name)
    if result.per != "step":
        raise Refused(f"{result.name} is of one micro-batch", "a sum over micro-batches")
    if not isinstance(writer, Task) or graph.readers(source.name) != [payload]:
        raise Refused(f"{source.name} is not what one task makes for it alone", "gradients that a task makes")
    graph.values[source.name] = replace(source, per="step")
    return source.size_bytes
