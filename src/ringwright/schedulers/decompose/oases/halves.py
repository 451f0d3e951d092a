"""Which tasks and operations of a step go by halves of the batch, and what is computed twice for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringwright.graph.algebra import RULES, RewriteError
from ringwright.graph.algebra.cut import CUTTABLE
from ringwright.ground.errors import WorkloadError
from ringwright.model.values import Value
from ringwright.model.workload import Payload, Task, Workload
from ringwright.schedulers.decompose._orders import added

WEIGHTS = "dW"


@dataclass(frozen=True)
class Halves:
    """A workload that was cut in two, and which half (0 or 1) each task is of; those of both are not there."""

    workload: Workload
    half: Mapping[str, int]


# ------------------------------------------------------------------------------------------------------------ sums kept
def twice(workload: Workload, *, required: bool) -> Workload:
    """Return the workload without the operations of a pass that is done again and that brings what forward brought.

    WorkloadError where they are ``required`` and there is none.
    """
    again = list(_again(workload))
    if not again:
        if required:
            what = f"{workload.name} computes nothing again, so nothing is sent twice"
            raise WorkloadError(what, where=workload.name, remedy="--recompute full, or schedule=oases")
        return workload
    try:
        made = RULES["reuse"](workload, again[0], also=again[1:])
    except RewriteError as error:
        return workload.saying("oases", f"what is computed again is sent again: {error.why}")
    return made.saying("oases", f"{len(again)} operations of passes that are done again read what forward has brought")


def _again(workload: Workload) -> Iterator[str]:
    """Yield the operations that begin in a backward slot and whose source is computed as that of a forward one."""
    task = workload.task
    functions = {
        _function(task[name]) for each in workload.payloads if (name := _maker(each, task)) and task[name].kind == "F"
    }
    for each in workload.payloads:
        name = _maker(each, task)
        if name and task[name].kind == "B" and _function(task[name]) in functions:
            yield each.name


def _maker(payload: Payload, task: Mapping[str, Task]) -> str:
    """Return the task that writes what a payload carries; none for what is no sum or gather of a micro-batch."""
    if payload.op not in CUTTABLE or payload.per != "micro-batch" or not payload.source or payload.op == "send-recv":
        return ""
    return next((name for name in payload.producers if payload.source in task[name].writes), "")


def _function(task: Task) -> tuple[str, str, str]:
    work = task.work
    settings = dict(work.settings) if work else {}
    same = str(settings.pop("same_as", task.name))
    settings.pop("outputs", None)
    known = work.meaning if work else ""
    parameters = repr([name for name, far in task.reads if far]) if known else ""
    return (known or same, repr(sorted(settings.items())) if known else "", parameters)


# ------------------------------------------------------------------------------------------------------------ halves
def cut_in_two(workload: Workload, dim: str, *, whole_weights: bool, required: bool) -> Halves | None:
    """Return the workload with all that can be cut along ``dim`` in two halves; None for single samples, if not ``required``.

    WorkloadError where no operation is behind a task that can be cut, or the halves would be of no whole sample.
    """
    workload = _unbarred(workload) if any(_is_between(each, workload) for each in workload.payloads) else workload
    known = {name for value in workload.values for name, _ in value.dims}
    if known and dim not in known:
        what = f"no value of {workload.name} has a dimension '{dim}'"
        raise WorkloadError(what, where=workload.name, remedy=f"dim: one of: {', '.join(sorted(known))}")
    tasks = [
        task
        for task in workload.tasks
        if _goes_by(task, workload.value, dim) and not (whole_weights and task.kind == WEIGHTS)
    ]
    names = {task.name for task in tasks}
    payloads = [each for each in workload.payloads if _lies_between(each, names, workload, dim)]
    if not payloads:
        if not required and _is_single(workload):
            return None
        what = f"no operation of {workload.name} lies between tasks that can be cut along {dim}"
        raise WorkloadError(what, where=workload.name, remedy=_remedy(workload))
    try:
        made = RULES["cut"](
            workload,
            tasks[0].name,
            dim=dim,
            parts=2,
            through=[*(t.name for t in tasks[1:]), *(p.name for p in payloads)],
        )
    except RewriteError as error:
        raise WorkloadError(
            f"{workload.name} does not go by halves: {error.why}", where=error.at, remedy=error.remedy or ""
        ) from None
    half = {name: at for task in tasks for at, name in enumerate(_parts(workload, made, task.name))}
    return Halves(made, half)


def _unbarred(workload: Workload) -> Workload:
    """Return the workload without the tasks that hold a pass back until another one is over, for both halves at once."""
    bars = [task.name for task in workload.tasks if task.kind == "B" and task.per == "micro-batch" and _is_idle(task)]
    return RULES["unbar"](workload, bars[0], also=bars[1:]) if bars else workload


def _is_idle(task: Task) -> bool:
    return not (task.reads or task.writes or task.seconds or task.demands)


def _is_single(workload: Workload) -> bool:
    """Whether its tensor-parallel operations are there, and only the batch is too small to be cut."""
    return workload.micro_batches > 1 and any(_is_between(each, workload) for each in workload.payloads)


def _is_between(payload: Payload, workload: Workload) -> bool:
    return (
        payload.per == "micro-batch"
        and payload.op in CUTTABLE
        and not payload.peer
        and not payload.joint
        and bool(payload.axes)
    )


def _remedy(workload: Workload) -> str:
    if not workload.values:
        return "a job of which it is known what tasks read and write: --model with tp2 or more"
    if workload.micro_batches > 1 and any(_is_between(each, workload) for each in workload.payloads):
        return "--micro-batch-size 2, or halves=micro-batches"
    return "--parallel with tp2 or more, and --micro-batch-size 2"


def _goes_by(task: Task, values: Mapping[str, Value], dim: str) -> bool:
    """Whether a task of a micro-batch can be cut along a dimension."""
    if task.per != "micro-batch" or task.lag or task.work is None or task.kind in ("U", "CTRL"):
        return False
    work, has = (
        task.work,
        {name for name in (*(n for n, _ in task.reads), *task.writes) if dim in dict(values[name].dims)},
    )
    if any(far and name in has for name, far in task.reads) or not has:
        return False
    if not work.meaning:
        return dim in work.cuts
    if work.meaning == "pointwise":
        return work.settings.get("fn") != "dropout" and all(name in has for name in task.writes)
    return work.meaning == "einsum" or (work.meaning == "rowwise" and work.settings.get("along") != dim)


def _lies_between(payload: Payload, tasks: set[str], workload: Workload, dim: str) -> bool:
    """Whether an operation goes from tasks that are cut, and to such tasks, if to any; others read both halves."""
    if not _is_between(payload, workload) or not payload.source or payload.lag:
        return False
    source = workload.value.get(payload.source)
    if source is None or dim not in dict(source.dims) or payload.name in workload.task:  # a rule takes it for that task
        return False
    users = [name for name, _ in payload.consumers]
    return all(name in tasks for name in payload.producers) and (not users or any(name in tasks for name in users))


def _parts(before: Workload, after: Workload, name: str, parts: int = 2) -> list[str]:
    """Return the names of the parts that a cut made of a task, in order: new ones, as a graph names what it adds."""
    return [added(before, after, f"{name}.{at}") for at in range(parts)]
