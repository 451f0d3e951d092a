"""What the ranks of a Workload hold over one steady step: the peak of each class, what holds it, and memory over time.

A value of a micro-batch is there from its writer to its last reader, so how many of them a pipeline stage holds follows from
its order. What one task needs within itself is not a value and is not counted, nor are fragments of an allocator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ringwright.model.values import ELEMENTS, KEPT, VALUE_KINDS, Value
from ringwright.model.workload import Payload, Task, Workload, turn_of

UNKNOWN = "nothing says what its tasks read and write"
OVERWRITING = ("all-reduce", "broadcast")  # operations whose result takes the place of their source
MOST_HOLDERS = 10
MOST_EXACT = 1 << 62  # bytes; beyond, sums are those of Python


@dataclass(frozen=True)
class Holder:
    """What holds memory at a peak: a value, its kind, bytes in all, and how many micro-batches of it there are."""

    name: str
    kind: str
    size_bytes: int
    copies: int


@dataclass(frozen=True)
class ClassMemory:
    """Memory of a rank of class ``of``, in bytes.

    ``at`` is the task, and the micro-batch, at which the peak is first reached; ``by_kind`` and ``holders`` (the largest, first)
    are of that moment. ``line`` has (task, micro-batch, bytes) in the order of a step.
    """

    of: str
    peak_bytes: int
    at: tuple[str, int]
    by_kind: Mapping[str, int]
    holders: tuple[Holder, ...] = field(repr=False)
    line: tuple[tuple[str, int, int], ...] = field(repr=False)


def memory(workload: Workload) -> tuple[ClassMemory, ...]:
    """Return what the ranks of each class hold in a steady step, with its policy; empty where nothing is known (``UNKNOWN``)."""
    return tuple(account.told() for account in _accounts(workload))


def _is_sent_alone(value: Value) -> bool:
    """Whether nobody knows more of a value than how many numbers were sent: a recording does not say what else is held."""
    return [name for name, _ in value.dims] == [ELEMENTS]


def _is_silent(task: Task) -> bool:
    """Whether a task computes something and does not say on what: then values tell only a part of what is held."""
    return task.seconds > 0 and not (task.reads or task.writes)


def peak_bytes(workload: Workload) -> int | None:
    """Return the most that a rank of any class holds; None where nothing is known (``UNKNOWN``)."""
    return max((account.peak_bytes() for account in _accounts(workload)), default=None)


def _accounts(workload: Workload) -> list[_Account]:
    if all(_is_sent_alone(value) for value in workload.values) or any(_is_silent(task) for task in workload.tasks):
        return []
    carried = _Carried(workload)
    return [_Account(workload, each.name, carried) for each in workload.classes]


@dataclass
class _Carried:
    """What is the same for all classes: payloads by their values, and which values share their place."""

    workload: Workload

    def __post_init__(self) -> None:
        self.from_source: dict[str, list[Payload]] = defaultdict(list)
        self.to_result: dict[str, Payload] = {}
        for payload in self.workload.payloads:
            if payload.source:
                self.from_source[payload.source].append(payload)
            if payload.result:
                self.to_result[payload.result] = payload
        self.writer = {name: task for task in self.workload.tasks for name in task.writes}
        self.readers: dict[str, list[tuple[Task, int]]] = defaultdict(list)
        for task in self.workload.tasks:
            for name, distance in task.reads:
                self.readers[name].append((task, distance))

    def stays(self, value: Value) -> bool:
        """Whether a value is there from step to step: state, a sum over micro-batches, or what nothing in a step writes.

        Frameworks clear the buffers of gradients and do not free them.
        """
        if value.kind in KEPT or (value.kind == "gradient" and value.per == "step"):
            return True
        return value.per == "step" and value.name not in self.writer and value.name not in self.to_result

    def versions(self, value: Value) -> int:
        """Return how many versions of what stays are there at a time: by how many steps the oldest that is read lies behind."""
        return max((distance for _, distance in self.readers.get(value.name, ())), default=1) or 1

    @cached_property
    def storage(self) -> dict[str, str]:
        """Value -> the first value in whose place it lies; what lies in its own place is not there."""
        storage: dict[str, str] = {}
        value = self.workload.value
        for name, payload in self.to_result.items():
            source = value.get(payload.source)
            if source is None or name not in value or source.of != value[name].of:
                continue
            both_stay = self.stays(source) and self.stays(value[name])
            if both_stay or (payload.op in OVERWRITING and not self.readers.get(source.name)):
                storage[name] = source.name
        for task in self.writer.values():  # a slice of what stays is a view of it
            if task.work and task.work.meaning == "slice" and self.stays(value[task.reads[0][0]]):
                storage[task.writes[0]] = task.reads[0][0]
        return {name: self._first(name, storage) for name in storage}

    def _first(self, name: str, storage: Mapping[str, str]) -> str:
        seen = {name}
        while name in storage and storage[name] not in seen:
            name = storage[name]
            seen.add(name)
        return name


@dataclass
class _Account:
    """The step of one class: its tasks in order, and from where to where each value is there."""

    workload: Workload
    of: str
    carried: _Carried

    def __post_init__(self) -> None:
        listed = list(_order(self.workload, self.of))
        turns = [turn_of(batch, self.workload.micro_batches) for _, batch in listed]
        self.order = [(name, batch) for (name, _), (batch, _) in zip(listed, turns, strict=True)]
        batches: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, ((name, batch), (_, earlier)) in enumerate(zip(self.order, turns, strict=True)):
            batches[name].append(
                (batch, at + earlier * len(listed))
            )  # what is left to the next step lies behind this one
        self.at: dict[str, np.ndarray] = {
            name: np.array([at for _, at in sorted(each)]) for name, each in batches.items()
        }

        self.steady: list[Holder] = []
        self.spans: list[tuple[Value, int, np.ndarray, np.ndarray]] = []

    def peak_bytes(self) -> int:
        """Return the highest level alone."""
        return int(self._levels().max())

    def told(self) -> ClassMemory:
        """Return the account."""
        held = self._levels()
        peak = int(np.argmax(held))
        holders = [*self.steady, *_held(self.spans, peak)]
        return ClassMemory(
            self.of,
            int(held[peak]),
            self.order[peak] if self.order else ("", 0),
            {kind: sum(each.size_bytes for each in holders if each.kind == kind) for kind in VALUE_KINDS},
            tuple(sorted(holders, key=lambda each: -each.size_bytes)[:MOST_HOLDERS]),
            tuple((name, batch, size) for (name, batch), size in zip(self.order, held.tolist(), strict=False)),
        )

    def _levels(self) -> np.ndarray:
        """Return the bytes held at each task of the order. int64 of shape (tasks,), objects where they are too many."""
        most = sum(value.size_bytes for value in self.workload.values if value.of == self.of) * len(self.order)
        changes = np.zeros(len(self.order) + 1, np.int64 if most < MOST_EXACT else object)
        for values in self._storages():
            first, size = values[0], max(value.size_bytes for value in values)
            if any(self.carried.stays(value) for value in values):
                versions = max(self.carried.versions(value) for value in values)
                self.steady.append(Holder(first.name, first.kind, versions * size, versions))
                changes[0] += versions * size
                continue
            for begins, ends in _within(self._spans(values), len(self.order)):
                np.add.at(changes, begins, size)
                np.add.at(changes, ends + 1, -size)
                self.spans.append((first, size, begins, ends))
        levels: np.ndarray = np.cumsum(changes)[: max(1, len(self.order))]
        return levels

    def _storages(self) -> Iterator[list[Value]]:
        """Yield the values of the class that share a place, the one that was there first before the others."""
        storages: dict[str, list[str]] = {}
        for value in self.workload.values:
            if value.of == self.of:
                first = self.carried.storage.get(value.name, value.name)
                storages.setdefault(first, []).append(value.name)
        for first, names in storages.items():
            yield [self.workload.value[name] for name in sorted(names, key=lambda name: name != first)]

    def _spans(self, values: list[Value]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (first task, last task) at which a place is taken, as arrays over micro-batches (one, of what is per step)."""
        begins: list[np.ndarray] = []
        ends: list[np.ndarray] = []
        later: list[np.ndarray] = []  # readers of the next step
        once = any(value.per == "step" for value in values)
        for name in (value.name for value in values):
            if name in self.carried.writer:
                begins.append(self._when(self.carried.writer[name].name))
            elif name in self.carried.to_result:
                begins.append(self._arrival(name))
            for task, distance in self.carried.readers.get(name, ()):
                (later if distance else ends).append(self._when(task.name))
            ends += [self._sent(payload) for payload in self.carried.from_source.get(name, ())]
        begins, ends, later = ([each for each in those if each.size] for those in (begins, ends, later))
        if not begins and not ends:
            return
        low = _joined(begins or ends, np.minimum, once=once)
        high = np.maximum(_joined([*begins, *ends], np.maximum, once=once), low)
        low, high = np.broadcast_arrays(low, high)
        if not later:
            yield low, high
            return
        last = np.full_like(high, len(self.order) - 1)
        yield low, last
        beyond = np.broadcast_to(_joined(later, np.maximum, once=once), low.shape)
        again = np.minimum(beyond, low - 1)
        yield np.zeros_like(again)[again >= 0], again[again >= 0]

    def _when(self, name: str) -> np.ndarray:
        """Return where a task stands in the order, by micro-batch; empty for one of another class."""
        return self.at.get(name, np.zeros(0, np.int64))

    def _produced(self, payload: Payload) -> np.ndarray:
        """Return the last task that a payload waits for on this class, by micro-batch; empty where it comes from another one."""
        mine = [each for each in map(self._when, payload.producers) if each.size]
        return _joined(mine, np.maximum, once=payload.per == "step") if mine else np.zeros(0, np.int64)

    def _used(self, payload: Payload) -> np.ndarray:
        """Return the first task of this class and step that waits for a payload, by micro-batch."""
        mine = [each for each in (self._when(name) for name, far in payload.consumers if not far) if each.size]
        return _joined(mine, np.minimum, once=payload.per == "step") if mine else np.zeros(0, np.int64)

    def _sent(self, payload: Payload) -> np.ndarray:
        """Return up to where a payload's source is there: one task runs beside it, unless that one waits for it."""
        produced, used = self._produced(payload), self._used(payload)
        if not produced.size:
            return produced
        until: np.ndarray = np.minimum(produced + 1, len(self.order) - 1)
        return np.maximum(np.minimum(until, used - 1), produced) if used.size else until

    def _arrival(self, name: str) -> np.ndarray:
        """Return from where a payload's result is there: when it is sent, or from another class, when it is used."""
        payload = self.carried.to_result[name]
        produced, used = self._produced(payload), self._used(payload)
        if not produced.size or not used.size:
            return used if used.size else produced
        sent: np.ndarray = np.minimum(produced + 1, used)
        return sent


def _within(spans: Iterable[tuple[np.ndarray, np.ndarray]], n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield spans of (first, last task) within a steady step of ``n`` tasks: what goes on behind its end begins it."""
    for low, high in spans:
        inside = low < n
        yield low[inside], np.minimum(high[inside], n - 1)
        beyond = high >= n
        if beyond.any():
            yield np.maximum(low[beyond] - n, 0), high[beyond] - n


def _held(spans: list[tuple[Value, int, np.ndarray, np.ndarray]], at: int) -> Iterator[Holder]:
    """Yield what is there at one task, the micro-batches of a value together."""
    counts: dict[tuple[str, str, int], int] = defaultdict(int)
    for value, size, begins, ends in spans:
        counts[value.name, value.kind, size] += int(((begins <= at) & (at <= ends)).sum())
    yield from (Holder(name, kind, size * copies, copies) for (name, kind, size), copies in counts.items() if copies)


def _joined(times: list[np.ndarray], by: np.ufunc, *, once: bool) -> np.ndarray:
    """Return the first or last of several times by micro-batch, what is once a step among them; or of all (``once``)."""
    joined: np.ndarray = times[0]
    for each in times[1:]:
        joined = by(joined, each)
    if not once:
        return joined
    whole: np.ndarray = by.reduce(joined, keepdims=True)
    return whole


def _order(workload: Workload, of: str) -> Iterator[tuple[str, int]]:
    """Yield (task, micro-batch) of a class: what begins a step, its micro-batches, what is left of it, its updates."""
    mine = [task for task in workload.tasks if task.of == of and task.per == "step"]
    yield from ((task.name, 0) for task in mine if task.kind == "CTRL")
    yield from workload.line(of)
    yield from ((task.name, 0) for task in mine if task.kind not in ("CTRL", "U"))
    yield from ((task.name, 0) for task in mine if task.kind == "U")
