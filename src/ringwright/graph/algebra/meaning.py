"""What a Workload's graph means: every task and operation carried out on small arrays of whole numbers, rank by rank.

Sums of integers do not depend on their order, so a graph that was rewritten must give the same numbers, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ringwright.graph.algebra.computation import block, computed, drawn
from ringwright.graph.algebra.movement import Held, carried
from ringwright.ground.errors import UsageError
from ringwright.model.values import KEPT, LOCAL, PARTIAL, Value
from ringwright.model.workload import Payload, Task, Workload, sends_earlier

Moment = tuple[str, int, int]  # value, step, micro-batch (0 of what is there once a step)
MOST_ELEMENTS = 1 << 22
Carry = Callable[[Payload, Held, Workload], Held]


@dataclass(frozen=True)
class GraphRun:
    """What every rank holds of every value of every step: arrays int64 by (value, step, micro-batch), then by rank."""

    held: Mapping[Moment, Held]
    unread: tuple[str, ...]

    def of(self, name: str) -> dict[tuple[int, int], Held]:
        """Return what is held of a value, by (step, micro-batch)."""
        return {(step, batch): each for (value, step, batch), each in self.held.items() if value == name and step >= 0}


def carry_out(
    workload: Workload, *, steps: int = 2, seed: int = 0, rank: int | None = None, carry: Carry | None = None
) -> GraphRun:
    """Return what ``steps`` steps of the graph compute from inputs drawn by ``seed``; UsageError for what has no meaning.

    Inputs (values that nothing writes) are drawn by their names: two graphs with the same inputs begin alike. What a task of a
    later step is to do (``lag``) it does in the steps behind the last one, so that nothing is left undone. With a ``rank``, only
    that one's tasks are carried out, and ``carry`` does its operations: for ranks that are processes of their own.
    """
    return _Run(workload, (steps, seed), rank, carry or carried).done()


class _Run:
    def __init__(self, workload: Workload, drawn: tuple[int, int], rank: int | None, carry: Carry) -> None:
        self.workload, (self.steps, self.seed), self.carry = workload, drawn, carry
        self.mesh = workload.mesh
        self.held: dict[Moment, Held] = {}
        self.writer: dict[str, Task | Payload] = {name: task for task in workload.tasks for name in task.writes}
        # What is brought from nowhere is an input.
        self.writer |= {each.result: each for each in workload.payloads if each.source and each.result}
        classes = {each.name: each.at for each in workload.classes}
        mine = range(self.mesh.size) if rank is None else [rank]
        self.ranks = {name: [r for r in mine if self._is_at(r, at)] for name, at in classes.items()}

    def _is_at(self, rank: int, at: Mapping[str, int]) -> bool:
        coordinates = self.mesh.place(rank)
        return all(coordinates[axis] == coordinate for axis, coordinate in at.items())

    def done(self) -> GraphRun:
        nodes = _in_order(self.workload)
        latest = max((node.lag for node in nodes), default=0)
        for step in range(self.steps + latest):
            for node in nodes:
                if 0 <= step - node.lag < self.steps:
                    for batch in range(self.workload.micro_batches if node.per == "micro-batch" else 1):
                        self._do(node, step - node.lag, batch)
        read = {name for task in self.workload.tasks for name, distance in task.reads if not distance}
        read |= {each.source for each in self.workload.payloads}
        return GraphRun(self.held, tuple(name for name in self.writer if name not in read))

    def _do(self, node: Task | Payload, step: int, batch: int) -> None:
        """Carry out a node for one micro-batch of the step that its work belongs to."""
        if isinstance(node, Payload):
            source = self.workload.value[node.source]
            held = self._read(source, step - self._earlier(node), batch)
            self._write(self.workload.value[node.result], step, batch, self.carry(node, held, self.workload))
            return
        reads = [self.workload.value[name] for name, _ in node.reads]
        # A distance counts steps as they are run; both ends may do the work of earlier ones.
        lags = [self.writer[name].lag if name in self.writer else 0 for name, _ in node.reads]
        at = [step + node.lag - distance - lag for (_, distance), lag in zip(node.reads, lags, strict=True)]
        held_by = [self._read(value, when, batch) for value, when in zip(reads, at, strict=True)]
        writes = [self.workload.value[name] for name in node.writes]
        made: list[Held] = [{} for _ in writes]
        for rank in self.ranks[node.of]:
            operands = [each[rank] for each in held_by]
            outs = computed(node, reads, operands, writes, self.mesh, rank, (step, batch))
            for held, array in zip(made, outs, strict=True):
                held[rank] = array
        for value, held in zip(writes, made, strict=True):
            self._write(value, step, batch, held)

    def _earlier(self, payload: Payload) -> int:
        writer = self.writer.get(payload.source)
        return int(isinstance(writer, Task) and sends_earlier(payload, writer))

    def _write(self, value: Value, step: int, batch: int, held: Held) -> None:
        moment = value.name, step, batch if value.per == "micro-batch" else 0
        if value.per == "step" and moment in self.held:  # summed up over micro-batches
            held = {rank: self.held[moment][rank] + array for rank, array in held.items()}
        self.held[moment] = held

    def _read(self, value: Value, step: int, batch: int) -> Held:
        moment = value.name, step, batch if value.per == "micro-batch" else 0
        if moment not in self.held:
            if value.name in self.writer and step >= 0:
                raise UsageError(f"{value.name} is read in step {step} before it is written", where=self.workload.name)
            self.held[moment] = self._drawn(value, step, moment[2])
        return self.held[moment]

    def _drawn(self, value: Value, step: int, batch: int) -> Held:
        """Draw a value from its name: what is replicated alike on all ranks, what is sliced out of one whole."""
        when = (0, 0) if value.kind in KEPT or step < 0 else (step + 1, batch)
        sizes = self.mesh.sizes
        shape = tuple(size for _, size in value.dims)
        if math.prod(shape) > MOST_ELEMENTS:
            raise UsageError(
                f"{value.name} has {math.prod(shape):,} elements", remedy="ringwright.graph.algebra.small first"
            )
        own = {each.axis for each in value.layout if each.how in (PARTIAL, LOCAL)}
        held = {}
        for rank in self.ranks[value.of]:
            coordinates = self.mesh.place(rank)
            mine = 0  # counted over the axes together: an axis may be two in another graph
            for axis, size in self.mesh.axes:
                mine = mine * size + coordinates[axis] if axis in own else mine
            key = (self.seed, value.name.partition("#")[0], *when, mine)
            array = drawn(key, shape)
            held[rank] = block(array, value, coordinates, sizes)
        return held


def _in_order(workload: Workload) -> list[Task | Payload]:
    """Return tasks and payloads such that within a step each comes after those whose values it needs."""
    nodes: list[Task | Payload] = [
        *workload.tasks,
        *(each for each in workload.payloads if each.source and each.result),
    ]
    writer = {name: node for node in nodes for name in _written(node)}

    def needs(node: Task | Payload) -> list[str]:
        if not isinstance(node, Payload):
            return [name for name, distance in node.reads if not distance]
        maker = writer.get(node.source)
        return [] if isinstance(maker, Task) and sends_earlier(node, maker) else [node.source]

    done: dict[tuple[type, str], bool] = {}
    order: list[Task | Payload] = []
    for root in nodes:
        stack: list[tuple[Task | Payload, Iterator[str]]] = [(root, iter(needs(root)))]
        if _key(root) in done:
            continue
        done[_key(root)] = False
        while stack:
            node, left = stack[-1]
            name = next((each for each in left if each in writer), None)
            if name is None:
                stack.pop()
                done[_key(node)] = True
                order.append(node)
                continue
            before = writer[name]
            if _key(before) not in done:
                done[_key(before)] = False
                stack.append((before, iter(needs(before))))
            elif not done[_key(before)]:
                raise UsageError(f"{node.name} and {before.name} wait for each other", where=workload.name)
    return order


def _key(node: Task | Payload) -> tuple[type, str]:
    """Return what tells a task and a payload of one name apart."""
    return type(node), node.name


def _written(node: Task | Payload) -> tuple[str, ...]:
    return (node.result,) if isinstance(node, Payload) else node.writes
