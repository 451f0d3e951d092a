"""Gathers of parameters, and sums of gradients, of every micro-batch: once a stage, where its passes lie together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ringwright.graph.pipelines.stages import PipelineStages
from ringwright.model.workload import Payload, Task, Workload
from ringwright.schedulers.order import GRADIENTS

Todo = tuple[str, str, Mapping[str, Any]]


def once_a_stage(workload: Workload, stages: PipelineStages, by: str, buffers: int) -> list[Todo]:
    """Return the rules that do them once: a stage is gathered when the one ``buffers`` passes before it has ended."""
    lines = {of: _line(workload, of, by) for of in stages.devices}
    todo: list[Todo] = []
    for payload in once_each(workload):
        if payload.op in ("reduce-scatter", "all-reduce"):
            todo.append(("once", payload.name, {}))
        elif payload.op == "all-gather":
            todo.append(("once", payload.name, {"behind": _behind(workload, lines[payload.of], payload, by, buffers)}))
    return todo


def once_each(workload: Workload) -> list[Payload]:
    """Return what is gathered or summed for every micro-batch among replicas, and is known by its values."""
    mine = [each for each in workload.payloads if each.role in GRADIENTS and each.per == "micro-batch"]
    return [each for each in mine if each.source and each.result and workload.mesh.extent(each.axes) > 1]


def left(workload: Workload) -> list[str]:
    """Return the operations among replicas that stay with every micro-batch, for nothing says what they send."""
    mine = [each for each in workload.payloads if each.role in GRADIENTS and each.per == "micro-batch"]
    return [each.name for each in mine if not (each.source and each.result)]


def _behind(
    workload: Workload, line: list[tuple[tuple[str, int], str]], payload: Payload, by: str, buffers: int
) -> list[str]:
    """Return the last task of the pass ``buffers`` before the one that first reads a gather; what begins a step before that."""
    first = next(workload.task[name] for name, _ in payload.consumers)
    at = next(at for at, (key, _) in enumerate(line) if key == _key(first, by))
    if at >= buffers:
        return [line[at - buffers][1]]
    return list(_begins(workload, payload))


def _begins(workload: Workload, payload: Payload) -> Iterator[str]:
    """Yield what stands for the begin of a step on the ranks of a gather."""
    steps = [
        task.name for task in workload.tasks if task.of == payload.of and task.kind == "CTRL" and task.per == "step"
    ]
    mine = [name for name in payload.producers if name in steps]
    yield from mine or steps[:1]


def _line(workload: Workload, of: str, by: str) -> list[tuple[tuple[str, int], str]]:
    """Return the passes of a class in the order of breadth first, and the last task of each."""
    ends: dict[tuple[str, int], str] = {}
    for task in workload.tasks:
        if task.of == of and task.per == "micro-batch" and task.kind != "CTRL":
            ends[_key(task, by)] = task.name
    forward = sorted((key for key in ends if key[0] == "F"), key=lambda key: key[1])
    backward = sorted((key for key in ends if key[0] != "F"), key=lambda key: -key[1])
    return [(key, ends[key]) for key in [*forward, *backward]]


def _key(task: Task, by: str) -> tuple[str, int]:
    return "F" if task.slot[0] == "F" else "B", task.slot[1] if by == "chunk" else task.layer
