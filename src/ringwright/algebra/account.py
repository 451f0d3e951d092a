"""What a step of one rank sends, issues, computes and holds, counted on the graph: what rules declare is held against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ringwright.costs.stages import VOLUME
from ringwright.memory import peak_bytes
from ringwright.workload import Payload, Workload


@dataclass(frozen=True)
class Totals:
    """Of one rank and step: bytes on the wire by role, operations, floating-point operations, most bytes held at once."""

    wire_bytes: Mapping[str, float]
    operations: int
    flops: float
    held_bytes: int


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
        times = workload.micro_batches if task.per == "micro-batch" else 1
        flops[task.of] += (task.work.flops if task.work else 0.0) * times
    return Totals(
        {role: max(by_class.values()) for role, by_class in wire.items()},
        max(operations.values(), default=0),
        max(flops.values(), default=0.0),
        peak_bytes(workload) or 0,
    )
