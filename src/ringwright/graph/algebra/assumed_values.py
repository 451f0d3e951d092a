"""Values for operations that have none: recorded steps say what was sent, not what it was."""

from __future__ import annotations

from ringwright.graph.algebra.editing import StepGraph
from ringwright.model.values import ELEMENTS, PARTIAL, SLICED, Placement, Value
from ringwright.model.workload import Payload, Workload

_FROM = {"all-reduce": PARTIAL, "reduce-scatter": PARTIAL, "all-gather": SLICED}


def valued(workload: Workload) -> Workload:
    """Return the Workload with a source and a result for each sum and gather that has none, of one dimension of elements."""
    lacking = [
        each for each in workload.payloads if not (each.source or each.result or each.joint) and each.op in _FROM
    ]
    if not lacking:
        return workload
    graph = StepGraph(workload)
    for payload in lacking:
        ranks = graph.extent(payload.axes)
        count = max(1, payload.elements or payload.size_bytes // 4)
        count += -count % ranks
        dims, cuts = ((ELEMENTS, count),), tuple(Placement(axis, SLICED, ELEMENTS) for axis in payload.axes)
        partial = tuple(Placement(axis, PARTIAL) for axis in payload.axes)
        before, after = {"all-reduce": (partial, ()), "reduce-scatter": (partial, cuts), "all-gather": (cuts, ())}[
            payload.op
        ]
        size = payload.size_bytes
        kind = "gradient" if payload.role in ("dp", "edp") else "activation"
        source = Value(f"{payload.name}.in", payload.of, size, dims, before, kind, payload.per, payload.dtype)
        result = Value(f"{payload.name}.out", payload.of, size, dims, after, kind, payload.per, payload.dtype)
        graph.values |= {source.name: source, result.name: result}
        graph.change(payload, source=source.name, result=result.name)
        _read(graph, payload, source, result)
    return graph.done()


def _read(graph: StepGraph, payload: Payload, source: Value, result: Value) -> None:
    """Let the tasks at both ends write and read the new values; of several producers, none alone writes the value."""
    if len(payload.producers) == 1:
        task = graph.tasks[payload.producers[0]]
        graph.change(task, writes=(*task.writes, source.name))
    for name, distance in payload.consumers:
        task = graph.tasks[name]
        if task.of == result.of:
            graph.change(task, reads=(*task.reads, (result.name, distance)))
