"""Tasks as instances: one per rank class and micro-batch, in the order of their stream."""

from __future__ import annotations

import numpy as np

from ringwright.engines.job.flat import NO_QUEUE
from ringwright.engines.job.groups import OperationGroups
from ringwright.engines.job.step import PS, UPDATES, Instances, StepBuilder
from ringwright.errors import UsageError
from ringwright.workload import Task, Workload


class Tasks:
    """Lays tasks and their edges into a step; ``at`` then says where each (task, rank class) is, one instance a micro-batch.

    ``span`` is how many tasks a step has in its longest stream.
    """

    def __init__(self, workload: Workload, groups: OperationGroups) -> None:
        self.workload, self.groups = workload, groups
        self.at: dict[tuple[str, int], np.ndarray] = {}
        self.tags = {tag: at for at, tag in enumerate(sorted({task.tag for task in workload.tasks if task.tag}))}
        self.span = 1

    def lay(self, step: StepBuilder) -> None:
        """Take in the tasks of all rank classes, then their edges."""
        for rank_class in range(len(self.groups.rank_classes)):
            self._of(step, rank_class)
        self._edges(step)

    def _of(self, step: StepBuilder, rank_class: int) -> None:
        workload, of = self.workload, self.groups.rank_classes.of[rank_class]
        listed = [task for task in workload.tasks if task.of == of]
        places = _places(workload, of, listed)
        self.span = max(self.span, len(places) + 1)
        for task in listed:
            count = workload.micro_batches if task.per == "micro-batch" else 1
            queue = step.queues.setdefault(("stream", rank_class, *self._stream(task)), len(step.queues))
            work = round(task.seconds * self.groups.rank_classes.slowdowns[rank_class] * PS)
            keys = [places[task.name, at] for at in range(count)]
            row = Instances(0, count, "task", task.name, (rank_class,), task.kind, layer=task.layer)
            if task.kind == "CTRL":
                first = step.add(row, queue=NO_QUEUE)
            else:
                tiles = int(next((amount for name, amount in task.demands if name == "tiles"), 0))
                first = step.add(row, work=work, queue=queue, key=keys, tag=self.tags.get(task.tag, -1), tiles=tiles)
            self.at[task.name, rank_class] = np.arange(first, first + count)
            if task.kind == UPDATES and task.per == "step":
                step.updates.append(first)
            taken = tuple(
                (step.pools.setdefault((rank_class, name), len(step.pools)), amount)
                for name, amount in task.demands
                if name != "tiles"
            )
            if task.kind == "CTRL" and any(amount > 0 for _, amount in taken):
                raise UsageError(
                    f"{task.name} takes tokens, and control waits for nothing but tasks",
                    where=workload.name,
                    remedy="let a task of another kind take them; control may give them back",
                )
            if taken:
                step.tokens.append((first, count, taken))

    def _stream(self, task: Task) -> tuple[str, ...]:
        """Return the stream of a task; without a barrier an update runs beside compute, as soon as its sum is back."""
        if task.kind == UPDATES and task.per == "step" and (self.workload.policy.boundary or "barrier") != "barrier":
            return ("update", task.name)
        return (task.stream,)

    def _edges(self, step: StepBuilder) -> None:
        for edge in self.workload.edges:
            src, dst = self.groups.task(edge.src, "edge"), self.groups.task(edge.dst, "edge")
            if src.of != dst.of:
                raise UsageError(
                    f"edge from {src.name} ({src.of}) to {dst.name} ({dst.of}) joins two classes of ranks",
                    where=self.workload.name,
                    remedy="ranks wait for each other through payloads only",
                )
            for rank_class in self.groups.of_class[src.of]:
                self._join(step, self.at[src.name, rank_class], self.at[dst.name, rank_class], edge.distance)

    def _join(self, step: StepBuilder, src: np.ndarray, dst: np.ndarray, distance: int = 0) -> None:
        """Micro-batch to micro-batch, or all to one, or one to all."""
        if len(src) == len(dst) or len(src) == 1 or len(dst) == 1:
            step.link(src, dst, distance)
        else:
            step.link(np.repeat(src, len(dst)), np.tile(dst, len(src)), distance)


def _places(workload: Workload, of: str, listed: list[Task]) -> dict[tuple[str, int], int]:
    """Return the place of each (task, micro-batch) in its stream's order of one step, updates of the step before first."""
    order = [(task.name, 0) for task in listed if task.per == "step" and task.kind == UPDATES]
    order += workload.line(of)
    order += [(task.name, 0) for task in listed if task.per == "step" and task.kind != UPDATES]
    positions = {each: at for at, each in enumerate(order)}
    missing = [task.name for task in listed if task.per == "micro-batch" and (task.name, 0) not in positions]
    if missing:
        raise UsageError(
            f"the order of class {of} never runs {missing[0]}",
            where=workload.name,
            remedy="every slot, every micro-batch",
        )
    return positions
