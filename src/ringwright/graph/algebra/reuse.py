"""R, the other direction: what is computed twice alike is read from where it was computed first, and need not be sent again.

Two values are alike if the same is done, in the same order, to the same inputs: then they are equal, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from ringwright.graph.algebra.editing import StepGraph, times_of
from ringwright.graph.algebra.recompute import listed, same_again, wire_of
from ringwright.graph.algebra.rule import Refused, rule
from ringwright.graph.algebra.waits import Node
from ringwright.model.values import Change, Work
from ringwright.model.workload import Payload, Task

Reading = Hashable


@rule("reuse", "a read of v' = a read of v, both computed alike from the same")
def reuse(graph: StepGraph, at: str, also: str | Sequence[str] = ()) -> Change:
    """Let what reads the result of an operation, and of others ``also``, read that of an earlier one on the same instead.

    The operation is not done again. What computed its source stays, for what else it writes.
    """
    readings = _Readings(graph)
    sent = [_again(graph, name) for name in dict.fromkeys([at, *listed(also)])]
    twins = [_twin(graph, readings, payload) for payload in sent]
    held = {twin.result: graph.values[twin.result].size_bytes for twin in twins}
    operations = sum(times_of(graph, payload) for payload in sent)
    wire = {role: -size for role, size in wire_of(graph, sent).items()}
    for payload, twin in zip(sent, twins, strict=True):
        for reader in graph.readers(payload.result):
            if isinstance(reader, Payload):
                graph.change(reader, source=twin.result)
            else:
                reads = tuple((twin.result if name == payload.result else name, far) for name, far in reader.reads)
                graph.change(reader, reads=reads)
        graph.drop(payload)
    return Change(wire, -operations, 0.0, sum(held.values()))


def _again(graph: StepGraph, at: str) -> Payload:
    payload = graph.payloads.get(at)
    if payload is None or not (payload.source and payload.result):
        raise Refused(f"'{at}' is no payload with values at its ends", "an operation that is done twice")
    return payload


def _twin(graph: StepGraph, readings: _Readings, payload: Payload) -> Payload:
    """Return the operation that did the same before; Refused for none."""
    mine = readings.of(payload.result)
    for each in graph.payloads.values():
        if each.name == payload.name or _kind(each) != _kind(payload) or not each.result:
            continue
        if readings.of(each.result) == mine and not readings.follows(each, payload):
            return each
    raise Refused(f"nothing was computed as {payload.name} is, before", "an operation of a pass that is done again")


def _kind(payload: Payload) -> tuple[object, ...]:
    return payload.of, payload.op, payload.axes, payload.per, payload.lag


class _Readings:
    """What each value is: what was done to which inputs, as a number that equal ones share."""

    def __init__(self, graph: StepGraph) -> None:
        self.graph = graph
        self.writer: dict[str, Node] = {name: task for task in graph.tasks.values() for name in task.writes}
        self.writer |= {each.result: each for each in graph.payloads.values() if each.result}
        self.known: dict[str, int] = {}
        self.numbers: dict[Reading, int] = {}

    def of(self, name: str) -> int:
        """Return the number of a value."""
        self._behind(name, lambda each: each in self.known, self._note)
        return self.known[name]

    def follows(self, one: Payload, other: Payload) -> bool:
        """Whether an operation needs what another one brings."""
        seen: set[str] = set()
        self._behind(one.source, seen.__contains__, seen.add)
        return other.result in seen

    def _behind(self, name: str, is_done: Callable[[str], bool], do: Callable[[str], None]) -> None:
        """Do something for a value and all behind it in the step, those before that they come from first."""
        stack, waiting = [name], {name}
        while stack:
            needs = [each for each in self._needs(stack[-1]) if not is_done(each) and each not in waiting]
            if needs and not is_done(stack[-1]):
                stack.append(needs[0])
                waiting.add(needs[0])
                continue
            do(stack.pop())

    def _needs(self, name: str) -> list[str]:
        node = self.writer.get(name)
        if node is None:
            return []
        if isinstance(node, Payload):
            return [node.source]
        settings = node.work.settings if node.work else {}
        labels, begins = list(settings.get("outputs", ())), settings.get("begins")
        first = [node.writes[labels.index(begins)]] if begins in labels else []
        return [*(each for each in first if each != name), *(each for each, far in node.reads if not far)]

    def _note(self, name: str) -> None:
        reading = self._reading(name)
        self.known[name] = self.numbers.setdefault(reading, len(self.numbers))

    def _reading(self, name: str) -> Reading:
        node = self.writer.get(name)
        if node is None:
            return ("input", name)
        if isinstance(node, Payload):
            sent = node.op, node.axes, node.root, node.hops, node.dtype, node.per
            return (*sent, self._layout(name), self.known.get(node.source, node.source))
        return self._made(node, name)

    def _made(self, task: Task, name: str) -> Reading:
        work = task.work or Work()
        try:
            same_again(task)
        except Refused:
            return ("drawn", name)
        settings = {key: each for key, each in work.settings.items() if key not in ("same_as", "outputs", "begins")}
        what = work.meaning or str(work.settings.get("same_as", task.name))
        labels = work.settings.get("outputs", range(len(task.writes)))
        label, begins = labels[task.writes.index(name)], work.settings.get("begins")
        reads = list(task.reads)
        if begins in labels and label != begins:  # it follows from the value that the task begins with
            reads = [(task.writes[labels.index(begins)], 0), *(each for each in reads if each[1])]
        of = tuple((each if far else self.known.get(each, each), far) for each, far in reads)
        return what, repr(sorted(settings.items())), of, task.per, self._layout(name), label

    def _layout(self, name: str) -> Reading:
        value = self.graph.values[name]
        return value.of, value.dims, value.layout, value.per, value.dtype
