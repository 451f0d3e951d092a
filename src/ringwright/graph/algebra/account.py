"""What a step of one rank sends, issues, computes and holds, counted on the graph: what rules declare is held against it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ringwright.graph.algebra.editing import COPIES
from ringwright.graph.memory import peak_bytes
from ringwright.model.stages import VOLUME
from ringwright.model.values import SLICED, Value
from ringwright.model.workload import Mesh, Payload, Task, Workload


@dataclass(frozen=True)
class Totals:
    """Of one rank and step: bytes on the wire by role, operations, floating-point operations, most bytes held at once, tasks that
    take time, bytes that tasks say that they read and write, and bytes that copies do.
    """

    wire_bytes: Mapping[str, float]
    operations: int
    flops: float
    held_bytes: int
    launches: int
    traffic_bytes: int
    copied_bytes: int


def launches(tasks: Iterable[Task], micro_batches: int) -> int:
    """Return how often tasks that take time run in a step; copies of bytes and relays are none."""
    return sum(_times(task, micro_batches) for task in tasks if task.kind != COPIES)


def traffic_bytes(tasks: Iterable[Task], micro_batches: int) -> int:
    """Return the bytes that tasks say that they read and write in a step."""
    works = ((task.work, _times(task, micro_batches)) for task in tasks)
    return sum((work.read_bytes + work.written_bytes) * times for work, times in works if work)


def copied_bytes(tasks: Iterable[Task], values: Mapping[str, Value], mesh: Mesh, micro_batches: int) -> int:
    """Return the bytes that copies read and write in a step, where what they write is no piece of what they read, or backwards.

    What lies in one piece is a view: blocks of the outermost dimension, one dimension more, the same bytes under another name.
    """
    copies = (task for task in tasks if task.kind == COPIES and task.work and not _is_view(task, values, mesh))
    return sum(
        sum(values[name].size_bytes for name in (*(n for n, _ in task.reads), *task.writes))
        * _times(task, micro_batches)
        for task in copies
    )


def _is_view(task: Task, values: Mapping[str, Value], mesh: Mesh) -> bool:
    meaning, settings = (task.work.meaning, task.work.settings) if task.work else ("", {})
    if meaning not in ("cut", "join", "slice", "permute", "pad"):
        return True
    whole = values[task.writes[0]] if meaning == "join" else values[task.reads[0][0]]
    along = str(settings.get("dim" if meaning in ("slice", "permute") else "along"))
    slices = math.prod(mesh.sizes[axis] for axis in whole.axes(SLICED, along))
    if meaning == "permute":
        return slices > 1  # each rank holds one block: nothing moves
    return meaning != "pad" and whole.dims[0][0] == along and int(settings.get("blocks", 1)) <= slices


def _times(task: Task, micro_batches: int) -> int:
    return micro_batches if task.per == "micro-batch" else 1


def wire_bytes(payload: Payload, ranks: int) -> float:
    """Return what the busiest rank of ``ranks`` sends for an operation at the least; a shift or a send moves all of its bytes."""
    if payload.op in VOLUME:
        return payload.size_bytes * float(VOLUME[payload.op](ranks))
    return payload.size_bytes * float(ranks > 1 or payload.op == "send-recv")


def totals(workload: Workload) -> Totals:
    """Return the totals of the class of ranks that has most of each."""
    wire: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    operations, flops = defaultdict[str, int](int), defaultdict[str, float](float)
    for payload in workload.payloads:
        times = workload.micro_batches if payload.per == "micro-batch" else 1
        wire[payload.role][payload.of] += wire_bytes(payload, workload.mesh.extent(payload.axes)) * times
        operations[payload.of] += times
    for task in workload.tasks:
        flops[task.of] += (task.work.flops if task.work else 0.0) * _times(task, workload.micro_batches)
    by_class = [[task for task in workload.tasks if task.of == each.name] for each in workload.classes]
    return Totals(
        {role: max(by_class.values()) for role, by_class in wire.items()},
        max(operations.values(), default=0),
        max(flops.values(), default=0.0),
        peak_bytes(workload) or 0,
        max((launches(tasks, workload.micro_batches) for tasks in by_class), default=0),
        max((traffic_bytes(tasks, workload.micro_batches) for tasks in by_class), default=0),
        max(
            (copied_bytes(tasks, workload.value, workload.mesh, workload.micro_batches) for tasks in by_class),
            default=0,
        ),
    )
