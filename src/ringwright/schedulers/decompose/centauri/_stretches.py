"""Where Centauri's operation tier finds its sites: a collective, with the tasks and collectives beside it that are cut alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ringwright.model.values import PARTIAL, SLICED
from ringwright.model.workload import Payload, Task, Workload
from ringwright.schedulers.decompose.centauri._operation import ComputedPart, SentPart, Stretch

OPS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")


@dataclass(frozen=True)
class Site:
    """A stretch of a graph: names of tasks and payloads from first to last, the dimension along which all of them are cut."""

    names: tuple[str, ...]
    dim: str
    at: str  # the collective that it begins with


def travels(workload: Workload, payload: Payload) -> bool:
    """Whether a payload is a collective of several ranks whose values are known."""
    known = payload.source in workload.value and payload.result in workload.value and not payload.joint
    return payload.op in OPS and known and not payload.lag and workload.mesh.extent(payload.axes) > 1


def sites(workload: Workload) -> Iterator[Site]:
    """Yield stretches that share no task and no payload, in the order of the payloads."""
    graph, used = _Neighbours(workload), set[str]()
    for payload in workload.payloads:
        if payload.name in used or not travels(workload, payload):
            continue
        listed = [(graph.stretch(payload, dim, used), dim) for dim in graph.dims(payload)]
        if listed:
            names, dim = max(listed, key=lambda each: len(each[0]))
            used.update(names)
            yield Site(names, dim, payload.name)


def stretch_of(workload: Workload, site: Site, inside: Mapping[tuple[str, ...], int]) -> Stretch:
    """Return what the operation tier is asked of a site; ``inside``: ranks of a level, by the axes of a group."""
    parts: list[ComputedPart | SentPart] = []
    for name in site.names:
        task, payload = workload.task.get(name), workload.payload.get(name)
        if payload is not None:
            ranks = workload.group(payload.of, payload.axes)
            sums = set(workload.value[payload.source].axes(PARTIAL)) <= set(payload.axes)
            many, network = inside.get(payload.axes, 0), payload.network
            parts.append(SentPart(payload.op, payload.size_bytes, ranks, payload.role, many, sums, network))
        elif task is not None:
            parts.append(ComputedPart(task.seconds, task.work.cuts.get(site.dim, 0.0) if task.work else 0.0))
    return tuple(parts)


class _Neighbours:
    """Who writes and reads what, of one step and micro-batch."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.readers: dict[str, list[Task]] = defaultdict(list)
        self.senders: dict[str, list[Payload]] = defaultdict(list)
        for task in workload.tasks:
            for name, distance in task.reads:
                if not distance:
                    self.readers[name].append(task)
        for payload in workload.payloads:
            self.senders[payload.source].append(payload)
        self.brought = {each.result: each for each in workload.payloads}

    @cached_property
    def writer(self) -> dict[str, Task]:
        return {name: task for task in self.workload.tasks for name in task.writes}

    def dims(self, payload: Payload) -> list[str]:
        """Return the dimensions along which a collective can be cut: those that it does not slice first."""
        value = self.workload.value
        source, result = value[payload.source], value[payload.result]
        mine = [dim for dim, _ in source.dims if dim in dict(result.dims)]
        sliced = {
            each.dim
            for end in (source, result)
            for each in end.layout
            if each.how == SLICED and each.axis in payload.axes
        }
        return sorted(mine, key=lambda dim: dim in sliced)

    def stretch(self, payload: Payload, dim: str, used: set[str]) -> tuple[str, ...]:
        """Return what can be cut along a dimension with a payload, from first to last, one behind another."""
        names: list[str] = [payload.name]
        before: Payload | None = payload
        while before is not None:
            task = self._cuttable(
                [self.writer[before.source]] if before.source in self.writer else [], dim, before, used
            )
            if task is None:
                break
            names.insert(0, task.name)
            before = self._one(
                [self.brought[name] for name, d in task.reads if not d and name in self.brought], dim, task, used
            )
            names[:0] = [before.name] if before else []
        after: Payload | None = payload
        while after is not None:
            task = self._cuttable(self.readers[after.result], dim, after, used)
            if task is None:
                break
            names.append(task.name)
            after = self._one([each for name in task.writes for each in self.senders[name]], dim, task, used)
            names += [after.name] if after else []
        return tuple(dict.fromkeys(names))

    def _cuttable(self, tasks: list[Task], dim: str, payload: Payload, used: set[str]) -> Task | None:
        """Return the one task beside a payload that can be cut along a dimension, and writes only what has it."""
        listed = [each for each in tasks if each.per == payload.per and not each.lag and self._rows(each, dim)]
        return listed[0] if len(listed) == 1 and listed[0].name not in used else None

    def _rows(self, task: Task, dim: str) -> bool:
        work, value = task.work, self.workload.value
        if work is None or not task.writes or any(dim not in dict(value[name].dims) for name in task.writes):
            return False
        if any(distance and dim in dict(value[name].dims) for name, distance in task.reads):
            return False
        if work.meaning == "rowwise":
            return work.settings.get("along") != dim
        if work.meaning == "pointwise":
            return work.settings.get("fn") != "dropout"
        return work.meaning == "einsum" or dim in work.cuts

    def _one(self, payloads: list[Payload], dim: str, task: Task, used: set[str]) -> Payload | None:
        """Return the one collective beside a task that is of the same part of a step and has the dimension."""
        value = self.workload.value
        listed = [
            each
            for each in payloads
            if travels(self.workload, each)
            and each.per == task.per
            and each.name not in used
            and dim in dict(value[each.source].dims)
            and dim in dict(value[each.result].dims)
            and self._slot(each) == task.slot
        ]
        return listed[0] if len(listed) == 1 else None

    def _slot(self, payload: Payload) -> tuple[str, int] | None:
        return next((self.workload.task[name].slot for name in payload.producers), None)
