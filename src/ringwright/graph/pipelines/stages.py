"""The pipeline of a workload: its devices along the model, the stages on each, and what their passes consist of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ringwright.graph.pipelines.shape import Shape, Slot
from ringwright.ground.errors import WorkloadError
from ringwright.model.workload import Task, Workload

Seat = tuple[str, int]  # class of ranks, virtual stage


@dataclass(frozen=True)
class PipelineStages:
    """Classes of ranks in the order of the pipeline, and where their virtual stages lie along the model.

    ``sides`` of the pipeline at which micro-batches enter: of two, a class is a pair of devices of opposite places.
    """

    devices: tuple[str, ...]
    shape: Shape
    sides: int = 1

    def seat(self, stage: int) -> Seat:
        """Return class and virtual stage at a place along the model."""
        device, chunk = self.shape.seat(stage)
        return self.devices[device], chunk


def stages_of(workload: Workload, slug: str) -> PipelineStages:
    """Return the pipeline; a WorkloadError that names ``slug`` where forward passes are no line over equal devices."""
    line = _line(workload, slug)
    devices = tuple(dict.fromkeys(of for of, _ in line))
    chunks, rest = divmod(len(line), len(devices))
    for folded in (False, True):
        shape = Shape(len(devices), workload.micro_batches, chunks, folded)
        if not rest and line == [PipelineStages(devices, shape).seat(stage) for stage in range(shape.stages)]:
            return PipelineStages(devices, shape, 2 if _changes_sides(workload) else 1)
    raise _refused(slug, workload, "its stages lie on the devices neither in a loop nor there and back")


def _line(workload: Workload, slug: str) -> list[Seat]:
    """Return the virtual stages along the model: each hands what it makes to the next one."""
    seats: dict[str, Seat] = {task.name: (task.of, task.slot[1]) for task in workload.tasks if _is_forward(task)}
    after: dict[Seat, set[Seat]] = {seat: set() for seat in seats.values()}
    for src, dst in _waits(workload):
        if src in seats and dst in seats and seats[src] != seats[dst]:
            after[seats[src]].add(seats[dst])
    taken = {seat for seats_behind in after.values() for seat in seats_behind}
    firsts = [seat for seat in after if seat not in taken]
    if not seats or len(firsts) != 1 or any(len(each) > 1 for each in after.values()):
        raise _refused(slug, workload, "its forward passes are not one line of stages")
    line = [firsts[0]]
    while after[line[-1]] and len(line) <= len(after):
        line += after[line[-1]]
    if len(line) != len(after):
        raise _refused(slug, workload, "its forward passes are not one line of stages")
    return line


def _changes_sides(workload: Workload) -> bool:
    """Whether a chunk goes on with what another rank of its class made of the chunk before."""
    task = workload.task
    return any(
        task[src].slot[1] != task[dst].slot[1]
        for payload in workload.payloads
        if payload.op == "shift" and payload.per == "micro-batch"
        for src in payload.producers
        for dst, _ in payload.consumers
    )


def _is_forward(task: Task) -> bool:
    return task.per == "micro-batch" and task.slot[0] == "F"


def _waits(workload: Workload) -> Iterable[tuple[str, str]]:
    """Yield who waits for whom within a micro-batch."""
    yield from ((edge.src, edge.dst) for edge in workload.edges if not edge.distance)
    for payload in workload.payloads:
        if payload.per == "micro-batch":
            yield from ((src, dst) for src in payload.producers for dst, distance in payload.consumers if not distance)


def _refused(slug: str, workload: Workload, why: str) -> WorkloadError:
    return WorkloadError(f"{slug}: {why}", where=workload.name, remedy="--parallel pp4,vp2, or another policy")


def passes(workload: Workload) -> dict[tuple[str, str, int], list[str]]:
    """Return the names of tasks by (class, F or B, virtual stage), as they are listed."""
    listed: dict[tuple[str, str, int], list[str]] = {}
    for task in workload.tasks:
        if task.per == "micro-batch":
            phase = "F" if task.slot[0] == "F" else "B"
            listed.setdefault((task.of, phase, task.slot[1]), []).append(task.name)
    return listed


def passes_in_order(workload: Workload, of: str) -> list[tuple[Slot, list[str]]]:
    """Return the passes of a class in order, and their tasks: those in a row of one chunk and micro-batch, forward or backward.

    A backward pass is I or W where it is that half alone, else B.
    """
    runs: list[tuple[tuple[bool, int, int], set[str], list[str]]] = []
    for name, batch in workload.line(of):
        task = workload.task[name]
        if task.kind == "CTRL":
            continue
        key = task.slot[0] == "F", task.slot[1], batch
        if not runs or runs[-1][0] != key:
            runs.append((key, set(), []))
        runs[-1][1].add("F" if key[0] else {"dW": "W", "dO": "I"}.get(task.kind, "B"))
        runs[-1][2].append(name)
    return [
        ((phases.pop() if len(phases) == 1 else "B", chunk, batch), names) for (_, chunk, batch), phases, names in runs
    ]
