"""What a step of one rank sends, issues, computes and holds, counted on the graph: what rules declare is held against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ringwright.costs.stages import VOLUME
from ringwright.values import KEPT
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
        max((most_held(workload, each.name) for each in workload.classes), default=0),
    )


def most_held(workload: Workload, of: str) -> int:
    """Return the most bytes of values that a rank of a class holds at once, its nodes one after another as values ask.

    A value is held from its writer to its last reader; what is there from step to step, or read in a later step, always.
    """
    mine = [each for each in workload.values if each.of == of]
    order = _order(workload, of)
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    always = {each.name for each in mine if each.kind in KEPT}
    for at, (reads, writes) in enumerate(order):
        for name, distance in reads:
            last[name] = at
            if distance:
                always.add(name)
        for name in writes:
            first[name] = at
    held = sum(each.size_bytes for each in mine if each.name in always)
    steps = [0] * (len(order) + 1)
    for each in mine:
        if each.name not in always:
            begin = first.get(each.name, 0)
            steps[begin] += each.size_bytes
            steps[max(last.get(each.name, begin), begin) + 1] -= each.size_bytes
    most = level = 0
    for step in steps:
        level += step
        most = max(most, level)
    return held + most


Step = tuple[tuple[tuple[str, int], ...], tuple[str, ...]]  # reads and writes of a node


class _Line:
    """Nodes in the order in which they can run: tasks as listed, payloads as soon as their source is there."""

    def __init__(self, workload: Workload, of: str) -> None:
        self.steps: list[Step] = []
        self.there: set[str] = set()
        self.sent = defaultdict[str, list[Payload]](list)
        for payload in workload.payloads:
            if payload.of == of and payload.source and payload.result:
                self.sent[payload.source].append(payload)

    def bring(self, name: str) -> None:
        """Take note that a value is there, and send what only waited for it."""
        names = [name]
        while names:
            held = names.pop()
            if held in self.there:
                continue
            self.there.add(held)
            for payload in self.sent.get(held, ()):
                self.steps.append((((payload.source, 0),), (payload.result,)))
                names.append(payload.result)

    def run(self, waiting: list[Step]) -> None:
        """Run tasks in their order, those that wait for later ones behind these."""
        while waiting:
            later = []
            for task in waiting:
                if not all(distance or name in self.there for name, distance in task[0]):
                    later.append(task)
                    continue
                self.steps.append(task)
                for name in task[1]:
                    self.bring(name)
            if len(later) == len(waiting):
                self.steps += later  # they wait for each other, which a rule of validity says
                return
            waiting = later


def _order(workload: Workload, of: str) -> list[Step]:
    """Return reads and writes of a class's nodes in the order in which they run."""
    tasks: list[Step] = [(each.reads, each.writes) for each in workload.tasks if each.of == of]
    written = {name for _, writes in tasks for name in writes} | {each.result for each in workload.payloads}
    line = _Line(workload, of)
    for value in workload.values:
        if value.of == of and value.name not in written:
            line.bring(value.name)
    line.run(tasks)
    return line.steps
