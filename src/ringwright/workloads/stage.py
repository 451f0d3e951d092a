"""One class of ranks under construction: its tasks, edges and payloads, and the passes that lay segments out as tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ringwright.model.values import Value, Work
from ringwright.model.workload import Edge, Payload, Task
from ringwright.workloads.segments import Exchange, Item, Segment


@dataclass
class RankClassBuilder:
    """Lists that grow. ``roles`` gives the axes of each role, ``dtype`` the element type of activations.

    ``first`` and ``last`` are the forward tasks at the ends of each chunk, ``enters`` and ``leaves`` the backward ones.
    """

    name: str
    roles: Mapping[str, tuple[str, ...]]
    dtype: str
    layers: Mapping[str, int]
    tasks: list[Task] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    payloads: dict[str, Payload] = field(default_factory=dict)
    first: dict[int, str] = field(default_factory=dict)
    last: dict[int, str] = field(default_factory=dict)
    enters: dict[int, str] = field(default_factory=dict)
    leaves: dict[int, str] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    read: dict[str, dict[str, int]] = field(default_factory=dict)
    written: dict[str, dict[str, None]] = field(default_factory=dict)
    carried: dict[str, tuple[str, str]] = field(default_factory=dict)
    work: dict[str, Work] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------------------------ values
    def reads(self, task: str, *names: str, distance: int = 0) -> None:
        """Let a task read values, perhaps of a step before."""
        mine = self.read.setdefault(task, {})
        for name in names:
            mine.setdefault(name, distance)

    def writes(self, task: str, *names: str) -> None:
        """Let a task write values."""
        self.written.setdefault(task, {}).update(dict.fromkeys(names))

    def carries(self, payload: str, source: str, result: str) -> None:
        """Say which value a payload takes, and what it makes of it."""
        self.carried[payload] = (source, result)

    def keep(self, *values: Value) -> None:
        """Add values."""
        self.values.update({value.name: value for value in values})

    def settled(self) -> None:
        """Write what tasks and payloads do with values into them."""
        for at, task in enumerate(self.tasks):
            said = {
                "reads": tuple(self.read.get(task.name, {}).items()),
                "writes": tuple(self.written.get(task.name, ())),
                "work": self.work.get(task.name),
            }
            self.tasks[at] = Task(**{**vars(task), **said})
        for name, (source, result) in self.carried.items():
            if name in self.payloads:
                self.payloads[name] = Payload(**{**vars(self.payloads[name]), "source": source, "result": result})

    # ------------------------------------------------------------------------------------------------------------- tasks
    def task(self, label: str, kind: str, seconds: float, slot: tuple[str, int], block: str, tag: str = "") -> str:
        """Add a task that runs once a micro-batch and return its name."""
        name = f"{self.name}.{label}"
        self.tasks.append(Task(name, self.name, kind, seconds, self.layer(block), slot, tag=tag))
        return name

    def layer(self, block: str) -> int:
        """Return the place of a block in the model; what follows the last one comes after it."""
        return self.layers.get(block, len(self.layers))

    def after(self, src: str, dst: str, distance: int = 0) -> None:
        """Make ``dst`` wait for ``src``."""
        self.edges.append(Edge(src, dst, distance))

    def send(
        self,
        label: str,
        role: str,
        what: tuple[str, int],
        producers: Sequence[str],
        consumers: Sequence[tuple[str, int]],
        **more: object,
    ) -> None:
        """Add a payload, or, where the role has no axis or there are no bytes, the edges that it would have been."""
        op, size = what
        if not self.roles.get(role) or not size:
            self.edges += [Edge(src, dst, distance) for src in producers for dst, distance in consumers]
            return
        name = f"{self.name}.{label}"
        settings = {"per": "micro-batch", "dtype": self.dtype, **more}
        self.payloads[name] = Payload(
            name,
            self.name,
            op,
            size,
            self.roles[role],
            role,
            tuple(producers),
            tuple(consumers),
            **settings,  # type: ignore[arg-type]
        )

    def widened(self, label: str, size: int, elements: int, task: str) -> bool:
        """Let a payload that was added before bring more, to one more task; whether it was."""
        name = f"{self.name}.{label}"
        held = self.payloads.get(name)
        if held is None:
            return False
        size, elements = held.size_bytes + size, held.elements + elements
        consumers = (*held.consumers, (task, 0))
        self.payloads[name] = replace(held, size_bytes=size, elements=elements, consumers=consumers)
        return True

    def consumed(self, label: str, task: str) -> None:
        """Let a task wait for a payload that was added before, if it was."""
        name = f"{self.name}.{label}"
        if name in self.payloads:
            held = self.payloads[name]
            self.payloads[name] = replace(held, consumers=(*held.consumers, (task, 0)))


@dataclass
class _Line:
    """Where a pass is: its last task, what was exchanged since, and what the task after the next waits for."""

    stage: RankClassBuilder
    direction: str  # forward or backward: which of an exchange's two operations counts
    label: str
    before: str = ""
    held: list[Exchange] = field(default_factory=list)
    late: list[str] = field(default_factory=list)

    def reach(self, task: str) -> None:
        """Join a task to what came before it."""
        for label in self.late:
            self.stage.consumed(label, task)
        self.late = []
        sent = [each for each in self.held if getattr(each, self.direction)[0]]
        if self.before and all(each.beside for each in sent):
            self.stage.after(self.before, task)
        for each in sent:
            for turn in range(each.backward_times if self.direction == "backward" else 1):
                label = f"{self.label}.{each.name}" + (f".{turn}" if turn else "")
                consumers = [] if each.beside else [(task, 0)]
                self.stage.send(label, each.role, getattr(each, self.direction), [self.before], consumers)
                self.late += [label] if each.beside else []
        self.before, self.held = task, []


def forward(stage: RankClassBuilder, chunk: int, items: Sequence[Item], phase: str = "F", before: str = "") -> _Line:
    """Add the forward tasks of ``items``; return where the pass ended, exchanges behind the last task unsent.

    Phase "F" is the forward pass; "R" runs it once more within the backward slot, after the task ``before``.
    """
    line = _Line(stage, "forward", phase, before)
    slot, kind = ("F", "F") if phase == "F" else ("B", "B")
    for item in items:
        if isinstance(item, Exchange):
            line.held.append(item)
        else:
            line.reach(
                stage.task(f"{phase}.{item.name}", kind, item.seconds.forward, (slot, chunk), item.block, item.tag)
            )
    return line


def backward(
    stage: RankClassBuilder,
    chunk: int,
    groups: Sequence[tuple[str, bool, list[Item]]],
    again: bool,
    makers: dict[str, str],
) -> None:
    """Add the backward tasks of the groups (block, whether it repeats, items) in reverse; ``again`` recomputes what repeats.

    ``makers`` is filled: segment -> the task that has made the gradients of its parameters.
    """
    line = _Line(stage, "backward", "B", stage.last[chunk])
    for block, repeats, items in reversed(groups):
        if again and repeats:
            _again(stage, chunk, line, block, items)
        for at in range(len(items) - 1, -1, -1):
            item = items[at]
            if isinstance(item, Exchange):
                line.held.append(item)
                continue
            before = line.before
            tag = "combine" if ".combine" in item.name else item.tag
            line.reach(stage.task(f"dO.{item.name}", "dO", item.seconds.inputs, ("B", chunk), item.block, tag))
            stage.enters.setdefault(chunk, line.before)
            makers[item.name] = line.before
            if item.seconds.weights:
                makers[item.name] = _weights(stage, chunk, items, at, before, line.before)
    for label in line.late:
        stage.consumed(label, line.before)
    stage.leaves[chunk] = line.before


def _weights(stage: RankClassBuilder, chunk: int, items: Sequence[Item], at: int, before: str, inputs: str) -> str:
    """Add the gradient of a segment's weights, for which its input may have to be gathered once more."""
    item = items[at]
    assert isinstance(item, Segment)  # noqa: S101 - the caller has looked
    task = stage.task(f"dW.{item.name}", "dW", item.seconds.weights, ("B", chunk), item.block, item.tag)
    stage.after(inputs, task)
    entered = items[at - 1] if at else None
    if isinstance(entered, Exchange) and entered.again[0]:
        stage.send(f"B.{entered.name}.again", entered.role, entered.again, [before], [(task, 0)])
    return task


def _again(stage: RankClassBuilder, chunk: int, line: _Line, block: str, items: Sequence[Item]) -> None:
    """Run a block's forward pass once more, from its input, before its backward pass."""
    start = stage.task(f"R.{block}", "B", 0.0, ("B", chunk), block)
    line.reach(start)
    done = forward(stage, chunk, items, "R", start)
    end = stage.task(f"R.{block}.done", "B", 0.0, ("B", chunk), block)
    done.reach(end)
    for label in done.late:
        stage.consumed(label, end)
    line.before = end
