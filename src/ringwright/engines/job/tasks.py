"""Tasks as instances: one per rank class and micro-batch, in the order of their stream."""

from __future__ import annotations

from collections import Counter

from ringwright.engines.job.flat import NO_QUEUE
from ringwright.engines.job.groups import OperationGroups
from ringwright.engines.job.step import UPDATES, Band, StepBuilder, Timing
from ringwright.ground.errors import UsageError
from ringwright.ground.units import PS
from ringwright.model.workload import Task, Workload, turn_of

Run = tuple[int, int]  # first instance, how many
TURN = "the turn of "  # begins the name of the one token for which the tasks of a stream and updates out of its order take turns


class Tasks:
    """Lays tasks and their edges into a step; ``at`` then says where each (task, rank class) is, one instance a micro-batch.

    ``span`` is how many tasks a step has in its longest stream.
    """

    def __init__(self, workload: Workload, groups: OperationGroups) -> None:
        self.workload, self.groups = workload, groups
        self.at: dict[tuple[str, int], Run] = {}
        self.tags = {tag: at for at, tag in enumerate(sorted({task.tag for task in workload.tasks if task.tag}))}
        counts = Counter[str]()
        for task in workload.tasks:
            counts[task.of] += workload.micro_batches if task.per == "micro-batch" else 1
        self.span = 1 + max(counts.values(), default=0)
        self.listed: dict[str, list[tuple[Task, list[int]]]] = {}
        self.turns = {(task.of, task.stream) for task in workload.tasks if self._is_beside(task) and task.seconds}

    def lay(self, step: StepBuilder) -> None:
        """Take in the tasks of all rank classes, then their edges."""
        for rank_class in range(len(self.groups.rank_classes)):
            self._of(step, rank_class)
        self._edges(step)

    def _of(self, step: StepBuilder, rank_class: int) -> None:
        of, slowdown = self.groups.rank_classes.of[rank_class], self.groups.rank_classes.slowdowns[rank_class]
        if of not in self.listed:
            self.listed[of] = self._in_order(of)
        for task, keys in self.listed[of]:
            first, count, control = step.n, len(keys), task.kind == "CTRL"
            queue = step.queues.setdefault(("stream", rank_class, *self._stream(task)), len(step.queues))
            band = Band(first, count, 1, "task", task.name, (rank_class,), task.kind, layer=task.layer)
            taken = self._taken(step, rank_class, task)
            if control:
                step.add(band, Timing(NO_QUEUE, tokens=taken))
            else:
                tiles = int(next((amount for name, amount in task.demands if name == "tiles"), 0))
                work, tag = round(task.seconds * slowdown * PS), self.tags.get(task.tag, -1)
                step.add(band, Timing(queue, 0, work, work, tag=tag, tiles=tiles, tokens=taken))
                step.keyed.append((first, keys))
            self.at[task.name, rank_class] = (first, count)
            if task.kind == UPDATES and task.per == "step" and not task.lag:
                step.updates.append(first)

    def _taken(self, step: StepBuilder, rank_class: int, task: Task) -> int:
        """Return the number of the list of tokens that a task takes and gives back."""
        wanted = [each for each in task.demands if each[0] != "tiles"]
        if task.kind != "CTRL" and task.seconds and (task.of, task.stream) in self.turns:
            wanted += [(TURN + task.stream, 1.0), (TURN + task.stream, -1.0)]
        taken = tuple((step.pools.setdefault((rank_class, name), len(step.pools)), amount) for name, amount in wanted)
        if task.kind == "CTRL" and any(amount > 0 for _, amount in taken):
            raise UsageError(
                f"{task.name} takes tokens, and control waits for nothing but tasks",
                where=self.workload.name,
                remedy="let a task of another kind take them; control may give them back",
            )
        return step.tokens.setdefault(taken, len(step.tokens))

    def _stream(self, task: Task) -> tuple[str, ...]:
        """Return the stream in whose order a task runs; an update that is out of its stream's order has one of its own."""
        return ("update", task.name) if self._is_beside(task) else (task.stream,)

    def _is_beside(self, task: Task) -> bool:
        """Whether a task is an update that its stream's order does not name: it runs when its sum is back and the stream rests.

        So it is without a barrier, and where it is done a step later, with the barrier behind it. The device is one: what the
        stream has ready goes first, then updates in the order in which they are listed, one at a time.
        """
        beside = bool(task.lag) or (self.workload.policy.boundary or "barrier") != "barrier"
        return task.kind == UPDATES and task.per == "step" and beside

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

    def _join(self, step: StepBuilder, src: Run, dst: Run, distance: int) -> None:
        """Micro-batch to micro-batch, or all to one, or one to all."""
        if src[1] == dst[1]:
            step.link(src[0], dst[0], (src[1], 1, 1), distance=distance)
        else:
            step.link(src[0], dst[0], (src[1], 1, 0), (dst[1], 0, 1), distance=distance)

    def _in_order(self, of: str) -> list[tuple[Task, list[int]]]:
        """Return the tasks of a class, and beside each its places in the stream's order of one step, by micro-batch.

        Updates of the step before come first, then the micro-batches, then what else is done once a step.
        """
        listed = [task for task in self.workload.tasks if task.of == of]
        places = _places(self.workload, of, listed, self.span)
        batches = self.workload.micro_batches
        in_order = []
        for task in listed:
            mine = places[task.name]
            try:
                in_order.append((task, [mine[at] for at in range(batches if task.per == "micro-batch" else 1)]))
            except KeyError:
                raise UsageError(
                    f"the order of class {of} never runs {task.name}",
                    where=self.workload.name,
                    remedy="every slot, every micro-batch",
                ) from None
        return in_order


def _places(workload: Workload, of: str, listed: list[Task], span: int) -> dict[str, dict[int, int]]:
    """Return task -> micro-batch -> place in the order of one step; what is left to the next step is ``span`` further on."""
    before = [(task.name, 0) for task in listed if task.per == "step" and task.kind == UPDATES]
    after = [(task.name, 0) for task in listed if task.per == "step" and task.kind != UPDATES]
    places: dict[str, dict[int, int]] = {task.name: {} for task in listed}
    line = workload.line(of)
    left = 1 + max((at for at, (_, batch) in enumerate(line) if batch < 0), default=-1)  # updates need it
    for at, (name, batch) in enumerate((*line[:left], *before, *line[left:], *after)):
        mine, earlier = turn_of(batch, workload.micro_batches)
        places[name][mine] = at + earlier * span
    return places
