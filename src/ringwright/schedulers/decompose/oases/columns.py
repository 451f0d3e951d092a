"""Domino's other cut: a product whose sum is sent goes by columns of its second factor, the first sent beside the others."""

from __future__ import annotations

from dataclasses import replace

from ringwright.graph.algebra import rewritten
from ringwright.graph.algebra.columns import has_columns
from ringwright.model.values import SLICED
from ringwright.model.workload import Payload, Task, Workload
from ringwright.schedulers.decompose._orders import added
from ringwright.schedulers.decompose.oases.halves import Halves

SENT = ("all-reduce", "reduce-scatter")
PARTS = 2


def by_columns(halves: Halves, dim: str) -> Halves:
    """Return the halves with each product whose sum is sent cut by columns, too: a task of its own, or the last of a task."""
    makers = {each.name: _maker(each, halves) for each in halves.workload.payloads}
    sent = [each for each in halves.workload.payloads if makers[each.name]]
    task = halves.workload.task
    long = [makers[each.name] for each in sent if _ends_in_columns(task[makers[each.name]], halves.workload, each)]
    opened = _opened(halves, long)
    last = {name: added(halves.workload, opened.workload, f"{name}.part{_kernels(task[name]) - 1}") for name in long}
    made, half, todo, whole = opened.workload, dict(opened.half), [], 0
    for payload in sent:
        maker = last.get(makers[payload.name], makers[payload.name])
        along = _column(made.task[maker], made, payload, dim)
        whole += not along
        if along:
            todo.append((payload.name, maker, along))
    cut = rewritten(
        made, [("cut", maker, {"dim": along, "parts": PARTS, "through": [name]}) for name, maker, along in todo]
    )
    for _, maker, _ in todo:
        half |= dict.fromkeys((added(made, cut, f"{maker}.{at}") for at in range(PARTS)), half[maker])
    said = [f"{len(todo)} products are cut by columns"] if todo else []
    said += [f"{whole} are not cut by columns: they are in the midst of a task, or no product"] if whole else []
    return replace(halves, workload=cut.saying("oases", *said), half=half)


def _maker(payload: Payload, halves: Halves) -> str:
    """Return the task of a half that makes what a payload sums up; empty for none."""
    if payload.op not in SENT or payload.per != "micro-batch" or not payload.source or payload.lag:
        return ""
    task = halves.workload.task
    return next((each for each in payload.producers if each in halves.half and payload.source in task[each].writes), "")


def _ends_in_columns(task: Task, workload: Workload, payload: Payload) -> bool:
    """Whether the last kernel of a task is a product whose columns are a dimension of what is sent."""
    work, value = task.work, workload.value
    if work is None or len(work.parts) < 2 or task.demands:
        return False
    last, source = work.parts[-1], value[payload.source]
    writes = [value[task.writes[each]] for each in last.writes]
    return source in writes and any(has_columns(last.work, [source], dim) for dim, _ in source.dims)


def _kernels(task: Task) -> int:
    return len(task.work.parts) if task.work else 0


def _opened(halves: Halves, names: list[str]) -> Halves:
    """Return the halves with these tasks as a task for each of their kernels, each of the half of its task."""
    before, half = halves.workload, dict(halves.half)
    if not names:
        return halves
    made = rewritten(before, [("open", name, {}) for name in names])
    for name in names:
        parts = [added(before, made, f"{name}.part{at}") for at in range(_kernels(before.task[name]))]
        half |= dict.fromkeys(parts, half.pop(name))
    return Halves(made, half)


def _column(task: Task, workload: Workload, payload: Payload, dim: str) -> str:
    """Return the dimension of the columns of a product's second factor; empty for what is no product."""
    value, work = workload.value, task.work
    if work is None or payload.source not in task.writes:
        return ""
    source, writes = value[payload.source], [value[name] for name in task.writes]
    if work.meaning != "einsum":
        return next((each for each, size in source.dims if size > 1 and has_columns(work, writes, each)), "")
    read = [dict(value[name].dims) for name, _ in task.reads]
    weights, sliced = [dims for dims in read if dim not in dims], set(source.axes(SLICED))
    for each, size in source.dims:
        alone = sum(each in dims for dims in read) == 1
        if each != dim and size > 1 and alone and any(each in dims for dims in weights) and not sliced:
            return each
    return ""
