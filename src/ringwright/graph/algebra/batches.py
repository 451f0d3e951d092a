"""X, over micro-batches: what is summed over them is sent once, and what is there already is fetched sooner or later."""

from __future__ import annotations

from dataclasses import replace

from ringwright.graph.algebra.account import wire_bytes
from ringwright.graph.algebra.editing import StepGraph
from ringwright.graph.algebra.rule import Refused, payload_at, rule, task_at
from ringwright.model.values import Change
from ringwright.model.workload import OPS


@rule("accumulate", "the sum over micro-batches of AR(g) = AR of the sum, and of a reduce-scatter")
def accumulate(graph: StepGraph, at: str) -> Change:
    """Add gradients up over micro-batches on each rank, and send their sum once a step."""
    payload = payload_at(graph, at, "all-reduce", "reduce-scatter")
    source, result = graph.values[payload.source], graph.values[payload.result]
    if payload.per != "micro-batch":
        raise Refused("it is sent once a step", "an operation of every micro-batch")
    if result.per != "step":
        raise Refused(f"{result.name} is needed in each micro-batch", "an operation whose results are added up")
    others = [each.name for each in graph.readers(source.name) if each.name != at]
    if others:
        raise Refused(f"{others[0]} reads {source.name} too", "a gradient that nobody else reads")
    if any(each.per == "micro-batch" for each in graph.readers(result.name)):
        raise Refused(f"{result.name} is read in each micro-batch", "a sum that the update reads")
    graph.values[source.name] = replace(source, per="step", kind="gradient")
    graph.change(payload, per="step")
    fewer = graph.before.micro_batches - 1
    wire = fewer * wire_bytes(payload, graph.extent(payload.axes))
    return Change({payload.role: -wire} if wire else {}, -fewer, 0.0, source.size_bytes)


@rule("begin-behind", "an operation on what is there already begins sooner or later: behind another task")
def begin_behind(graph: StepGraph, at: str, task: str) -> Change:
    """Let an operation begin as soon as ``task`` has ended, in place of the tasks that it waits for and needs nothing of."""
    payload, behind = payload_at(graph, at, *OPS), task_at(graph, task)
    if not graph.waits.behind(payload):
        raise Refused(
            "it waits for nothing but what it sends", "an operation that is held back: a gather of parameters"
        )
    if behind.of != payload.of or behind.per != payload.per:
        raise Refused(f"{task} is of other ranks or micro-batches", "a task of its class that runs as often")
    graph.waits.wait(payload, [task])
    return Change({}, 0, 0.0, graph.values[payload.result].size_bytes)
