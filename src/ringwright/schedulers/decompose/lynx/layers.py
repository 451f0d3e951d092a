"""What a stage's layers do and keep, and in which windows a rank waits for an operation while nothing is left to compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from ringwright.graph.algebra.recompute import BACKWARD, same_again
from ringwright.graph.algebra.rule import Refused
from ringwright.model.stages import Costs, seconds
from ringwright.model.values import KEPT
from ringwright.model.workload import Payload, Task, Workload
from ringwright.schedulers.decompose._orders import Pass, stretches
from ringwright.schedulers.decompose.lynx.program import LayerOperation, Window

FORWARD, BACK = "forward", "backward"


@dataclass(frozen=True)
class WindowBefore:
    """A window right before a task, in the forward pass of another micro-batch or in the backward pass of the layer above."""

    window: Window
    task: str
    in_pass: str


@dataclass(frozen=True)
class StageLayer:
    """A layer of a class of ranks: what it does, as operations named like their tasks and payloads, and its windows.

    ``chunk`` is the virtual stage that it is of: backward passes of others run before or behind its own, not through it.
    """

    of: str
    number: int
    operations: tuple[LayerOperation, ...]
    windows: tuple[WindowBefore, ...]
    chunk: int = 0

    @property
    def needed(self) -> tuple[tuple[int, int], ...]:
        """What backward needs of it: time in ps and bytes of each operation whose results it reads."""
        return tuple((round(each.seconds * 1e12), each.held_bytes) for each in self.operations if each.is_needed)

    @property
    def signature(self) -> tuple[object, ...]:
        """What makes two layers alike: all but names."""
        names = {each.name: at for at, each in enumerate(self.operations)}
        parts = tuple(
            (
                round(each.seconds * 1e12),
                each.held_bytes,
                tuple(names[name] for name in each.reads),
                each.is_needed,
                each.is_once,
            )
            for each in self.operations
        )
        return parts, tuple((each.in_pass, round(each.window.seconds * 1e12)) for each in self.windows)


class LayersOfClass:
    """The layers of one class of ranks."""

    def __init__(self, workload: Workload, costs: Costs, of: str) -> None:
        self.workload, self.costs, self.of = workload, costs, of
        self.passes = stretches(workload, of)
        self.tasks = {task.name: task for task in workload.tasks if task.of == of and task.per == "micro-batch"}
        self.payloads = [each for each in workload.payloads if each.of == of and each.per == "micro-batch"]
        self.writer: dict[str, Task | Payload] = {name: task for task in self.tasks.values() for name in task.writes}
        self.writer |= {each.result: each for each in workload.payloads if each.result and each.per == "micro-batch"}
        self.read_back = {
            name for task in self.tasks.values() if task.kind in BACKWARD for name, far in task.reads if not far
        }

    @cached_property
    def copies(self) -> int:
        """How many micro-batches are under way at the most."""
        begun = most = 0
        for (phase, _), _ in self.passes:
            begun += 1 if phase == "F" else -1
            most = max(most, begun)
        return max(1, most)

    @cached_property
    def ahead(self) -> dict[int, int]:
        """Micro-batch of a backward pass -> that of the forward pass right before it, where this is another one."""
        pairs = {}
        keys = list(self.passes)
        if len({slot for slot, _ in keys}) > 2:
            return {}  # with several chunks the pass before is often that of another one
        for ((phase, _), batch), ((later, _), after) in pairwise(keys):
            if phase == "F" and later != "F" and batch != after:
                pairs[after] = batch
        return pairs

    def waits(self, of: Pass) -> bool:
        """Whether a backward pass is right behind another one: then a stage of a pipeline waits for it."""
        return of in self._behind

    def window(self, layer: StageLayer, name: str) -> WindowBefore | None:
        """Return a window of a layer by its name, or of another one by number and name; None for what is no window."""
        number, _, own = name.rpartition(":")
        mine = next((each for each in self.layers if each.number == int(number)), layer) if number else layer
        return next((each for each in mine.windows if each.window.name == own), None)

    @cached_property
    def layers(self) -> tuple[StageLayer, ...]:
        """The layers whose forward pass keeps something for backward, the first one first."""
        forward: dict[int, list[Task]] = {}
        for task in self.tasks.values():
            if task.kind == "F":
                forward.setdefault(task.layer, []).append(task)
        numbers = sorted(forward)
        made = list[StageLayer]()
        for number in reversed(numbers):
            operations = tuple(self._operations(forward[number]))
            if any(each.is_needed for each in operations):
                layer = StageLayer(self.of, number, operations, (), forward[number][0].slot[1])
                # What is early in the pass of another kind of layer, such as a head, waits beside what only that one holds.
                alike = made and (made[-1].needed, made[-1].chunk) == (layer.needed, layer.chunk)
                windows = self._windows(layer, made[-1].number if alike else None, len(numbers))
                made.append(replace(layer, windows=tuple(windows)))
        return tuple(reversed(made))

    @cached_property
    def _behind(self) -> set[Pass]:
        return {later for (before, _), later in pairwise(self.passes) if before[0] != "F" and later[0][0] != "F"}

    # -------------------------------------------------------------------------------------------------------- operations
    def _operations(self, tasks: list[Task]) -> Iterable[LayerOperation]:
        """Yield the tasks of a layer, and the operations between two of them."""
        mine = {task.name for task in tasks}
        sent = {each.name: each for each in self.payloads if _between(each, mine)}
        inside: dict[str, str] = {name: task.name for task in tasks for name in task.writes}
        inside |= {each.result: each.name for each in sent.values()}
        for task in tasks:
            for name, _ in task.reads:
                if name in inside and inside[name] in sent:
                    yield self._sent(sent.pop(inside[name]), inside)
            needed = [name for name in task.writes if name in self.read_back]
            size = sum(
                self.workload.value[name].size_bytes for name in needed or task.writes
            )  # kept for others, all of it
            reads = tuple(dict.fromkeys(inside[name] for name, far in task.reads if not far and name in inside))
            once = self._is_once(task, inside)
            yield LayerOperation(task.name, task.seconds, size, reads, bool(needed), once)

    def _sent(self, payload: Payload, inside: Mapping[str, str]) -> LayerOperation:
        needed = payload.result in self.read_back
        return LayerOperation(
            payload.name,
            self._wire_s(payload),
            self.workload.value[payload.result].size_bytes,
            (inside[payload.source],),
            needed,
        )

    def _is_once(self, task: Task, inside: Mapping[str, str]) -> bool:
        """Whether a task's results must be kept: it draws anew, or reads what another layer made and may not keep."""
        try:
            same_again(task)
        except Refused:
            return True
        for name, far in task.reads:
            writer = self.writer.get(name)
            if far:
                if writer is not None and self.workload.value[name].kind not in KEPT:
                    return True
            elif name not in inside and writer is not None and not self._is_received(name, writer):
                return True
        return False

    def _is_received(self, name: str, writer: Task | Payload) -> bool:
        """Whether a value comes from another stage, and backward reads it: then it is there anyway."""
        return isinstance(writer, Payload) and writer.of != self.of and name in self.read_back

    # ----------------------------------------------------------------------------------------------------------- windows
    def _windows(self, layer: StageLayer, above: int | None, layers: int) -> Iterable[WindowBefore]:
        if self.ahead:
            for at, (idle, task) in enumerate(self._idle(layer.number, ("F",))):
                yield WindowBefore(Window(f"{FORWARD}{at}", idle, layers), task, FORWARD)
        if above is not None:
            first = self._first_read(layer)
            early = [each for each in self._idle(above, BACKWARD) if self._order[each[1]] < first]
            for at, (idle, task) in enumerate(early):
                yield WindowBefore(Window(f"{BACK}{at}", idle), task, BACK)

    def _first_read(self, layer: StageLayer) -> int:
        """Return where backward first reads what a layer made: what is computed again later than that is too late."""
        made = {name for each in layer.operations if each.name in self.tasks for name in self.tasks[each.name].writes}
        made |= {each.result for each in self.payloads if each.name in {mine.name for mine in layer.operations}}
        return min(
            self._order[task.name]
            for task in self.tasks.values()
            if task.kind in BACKWARD and any(name in made and not far for name, far in task.reads)
        )

    def _idle(self, number: int, kinds: tuple[str, ...]) -> list[tuple[float, str]]:
        """Return the seconds for which a task of a pass waits for what a layer sent while nothing is left to do, and the task."""
        waits: dict[str, float] = {}
        order = self._order
        for each in self.payloads:
            makers = [name for name in each.producers if name in order and self.tasks[name].kind in kinds]
            users = [name for name, far in each.consumers if not far and name in order]
            if not makers or not users or max(self.tasks[name].layer for name in makers) != number:
                continue
            begin, user = max(order[name] for name in makers), min(users, key=lambda name: order[name])
            if order[user] <= begin or self.tasks[user].slot != self.tasks[makers[0]].slot:
                continue
            busy = sum(self._lasting[begin + 1 : order[user]])
            waits[user] = max(waits.get(user, 0.0), self._wire_s(each) - busy)
        return [(idle, user) for user, idle in sorted(waits.items(), key=lambda item: order[item[0]]) if idle > 0]

    @cached_property
    def _order(self) -> dict[str, int]:
        """Where each task of the first micro-batch is in the order of its class."""
        items = [item for (_, batch), each in self.passes.items() if not batch for item in each]
        return {name: at for at, (name, _) in enumerate(items)}

    @cached_property
    def _lasting(self) -> list[float]:
        return [self.tasks[name].seconds for name in self._order]

    def _wire_s(self, payload: Payload) -> float:
        ranks = self.workload.group(self.of, payload.axes)
        return seconds(self.costs, payload.asked, payload.size_bytes, ranks, payload.role)


def _between(payload: Payload, tasks: set[str]) -> bool:
    """Whether an operation goes from tasks of a layer to tasks of the same one."""
    if payload.peer or payload.joint or not (payload.source and payload.result):
        return False
    return all(name in tasks for name in payload.producers) and any(name in tasks for name, _ in payload.consumers)


def joint(layers: tuple[StageLayer, ...], reach: int) -> tuple[tuple[LayerOperation, ...], tuple[WindowBefore, ...]]:
    """Return the operations and windows of all layers of a stage in one program, each layer with windows up to ``reach`` away."""

    def named(layer: StageLayer, window: WindowBefore) -> str:
        return f"{layer.number}:{window.window.name}"

    windows = [
        replace(each, window=Window(named(layer, each), each.window.seconds, 1))
        for layer in layers
        for each in layer.windows
        if each.in_pass == FORWARD
    ]
    windows += [
        replace(each, window=Window(named(layer, each), each.window.seconds, 0))
        for layer in reversed(layers)
        for each in layer.windows
        if each.in_pass == BACK
    ]
    operations = []
    for layer in layers:
        mine = [
            named(other, each)
            for other in layers
            for each in other.windows
            if (each.in_pass == BACK and 0 <= other.number - layer.number <= reach and other.chunk == layer.chunk)
            or (each.in_pass == FORWARD and abs(other.number - layer.number) <= reach)
        ]
        operations += [replace(each, layer=layer.number, windows=tuple(mine)) for each in layer.operations]
    return tuple(operations), tuple(windows)
