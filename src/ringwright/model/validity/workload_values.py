"""Rules about values: one writer each, axes and dimensions that exist, whole blocks, and whoever reads one waits for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ringwright.model.validity.layouts import LayoutRefusal, cut, written
from ringwright.model.validity.workload_finding import Finding
from ringwright.model.validity.workload_reach import Reach
from ringwright.model.values import (
    FUSED,
    LOCAL,
    MEANINGS,
    PARTIAL,
    PLACED,
    SLICED,
    VALUE_KINDS,
    Placement,
    Value,
    Work,
    parts_of,
)
from ringwright.model.workload import PER

if TYPE_CHECKING:
    from ringwright.model.workload import Payload, Task, Workload


def values(workload: Workload) -> Iterator[Finding]:
    """Yield values that cannot be, that two write, or that are read and do not exist."""
    if not workload.values and not any(task.reads or task.writes for task in workload.tasks):
        return
    known = {each.name for each in workload.classes}
    for value in workload.values:
        where = f"value {value.name}, class {value.of}"
        if value.of not in known:
            yield Finding("value", f"{value.name} is of class '{value.of}'", where, f"one of: {', '.join(known)}")
        if value.kind not in VALUE_KINDS:
            yield Finding("value", f"{value.name} is a '{value.kind}'", where, f"one of: {', '.join(VALUE_KINDS)}")
        if value.per not in PER:
            yield Finding("value", f"{value.name} is written once a '{value.per}'", where, f"one of: {', '.join(PER)}")
        if value.size_bytes < 0:
            yield Finding("value", f"{value.name} has {value.size_bytes} B", where, "0 B or more")
        yield from _placed(workload, value, where)
    yield from _names(workload)
    yield from _meanings(workload)


def _placed(workload: Workload, value: Value, where: str) -> Iterator[Finding]:
    """Yield placements on what is no axis or no dimension, twice along one axis, or in blocks of different sizes."""
    sizes, dims = workload.mesh.sizes, dict(value.dims)
    if _lies_well(value.dims, value.layout, tuple(sizes.items())):
        return
    for axis, count in Counter(each.axis for each in value.layout).items():
        if count > 1:
            yield Finding("layout", f"{value.name} lies along '{axis}' in {count} ways", where, "one placement an axis")
    for each in value.layout:
        if each.axis not in sizes:
            what, remedy = f"{value.name} lies along '{each.axis}'", f"one of: {', '.join(sizes)}"
            yield Finding("layout", what, where, remedy)
        elif each.how not in PLACED:
            yield Finding("layout", f"{value.name} is '{each.how}'", where, f"one of: {', '.join(PLACED)}")
        elif each.how == SLICED and dims and each.dim not in dims:
            what, remedy = f"{value.name} is sliced along '{each.dim}'", f"one of: {', '.join(dims)}"
            yield Finding("layout", what, where, remedy)
    for dim, size in value.dims:
        parts = math.prod(sizes.get(axis, 1) for axis in value.axes(SLICED, dim))
        if size < 0 or size % parts:
            what = f"{dim} of {value.name} is {size}, which {parts} ranks do not share out evenly"
            yield Finding("layout", what, where, "pad it to a multiple")


@lru_cache(1 << 14)
def _lies_well(
    dims: tuple[tuple[str, int], ...], layout: tuple[Placement, ...], axes: tuple[tuple[str, int], ...]
) -> bool:
    """Whether each axis exists and is used once, slices are along dimensions there are, and blocks are of one size."""
    sizes, parts = dict(axes), dict.fromkeys([name for name, _ in dims], 1)
    for each in layout:
        if each.axis not in sizes or each.how not in PLACED:
            return False
        if each.how == SLICED and dims:
            if each.dim not in parts:
                return False
            parts[each.dim] *= sizes[each.axis]
    once = len({each.axis for each in layout}) == len(layout)
    return once and not any(size < 0 or size % parts[name] for name, size in dims)


def _names(workload: Workload) -> Iterator[Finding]:
    """Yield what is read, written or sent and is no value, and values that two write."""
    known, writers = workload.value, Counter[str]()
    for task in workload.tasks:
        writers.update(task.writes)
        for name in (*(name for name, _ in task.reads), *task.writes):
            if name not in known:
                where = f"task {task.name}, class {task.of}"
                yield Finding("value", f"{task.name} names a value '{name}' that does not exist", where, "add it")
            elif known[name].of != task.of:
                what = f"{task.name} is of class {task.of}, its value {name} of {known[name].of}"
                yield Finding("value", what, f"task {task.name}", "values go to other classes by payloads")
        if any(distance < 0 for _, distance in task.reads):
            yield Finding("value", f"{task.name} reads a value of a later step", f"task {task.name}", "0 or more")
    for payload in workload.payloads:
        writers.update([payload.result] if payload.result else [])
        for name in (payload.source, payload.result):
            if name and name not in known:
                what = f"{payload.name} names a value '{name}' that does not exist"
                yield Finding("value", what, f"payload {payload.name}", "add it or leave it out")
    for name, count in writers.items():
        if count > 1:
            yield Finding("value", f"{count} write {name}", f"value {name}", "one writer; add up in a task")


def _meanings(workload: Workload) -> Iterator[Finding]:
    for task in workload.tasks:
        work = task.work
        if work is None:
            continue
        where = f"task {task.name}, class {task.of}"
        if work.meaning and work.meaning not in MEANINGS:
            yield Finding("work", f"{task.name} is '{work.meaning}'", where, f"one of: {', '.join(MEANINGS)}")
        amounts = (work.flops, work.read_bytes, work.written_bytes, *work.cuts.values())
        if any(not math.isfinite(each) or each < 0 for each in amounts):
            yield Finding("work", f"{task.name} has an amount of work below 0, or none", where, "numbers of 0 or more")
        if any(min(each.m, each.n, each.k, each.times) < 1 or each.cut not in "mnk" for each in work.products):
            yield Finding("work", f"{task.name} has a product with a side below 1", where, "sides of 1 or more")
        yield from _parts(task, work, where)


def _parts(task: Task, work: Work, where: str) -> Iterator[Finding]:
    """Yield parts that read or write what the task does not, and values that no part, or several, write."""
    if not work.parts:
        return
    read = {at for part in work.parts for at in part.reads}
    written = sorted(at for part in work.parts for at in part.writes)
    if not math.isclose(sum(part.share for part in work.parts), 1.0, rel_tol=1e-6):
        yield Finding("work", f"the parts of {task.name} do not add up to its time", where, "shares that add up to 1")
    if read - set(range(len(task.reads))) or written != list(range(len(task.writes))):
        what = f"the parts of {task.name} read or write other values than it does"
        yield Finding("work", what, where, "each written value in one part")
    if work.parts[-1].dims:
        yield Finding("work", f"the last part of {task.name} hands something on", where, "no dims for the last part")


def layouts(workload: Workload) -> Iterator[Finding]:
    """Yield tasks that cannot write values that lie as theirs do."""
    known, sizes = workload.value, workload.mesh.sizes
    for task in workload.tasks:
        work = task.work
        if work is None or not work.meaning or not task.writes or not task.reads:
            continue
        reads = [known[name] for name, _ in task.reads]
        writes = [known[name] for name in task.writes]
        try:
            _require_layouts(work, reads, writes, sizes)
        except LayoutRefusal as refusal:
            yield Finding("layout", f"{task.name}: {refusal}", f"task {task.name}, class {task.of}", refusal.remedy)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            what = f"{task.name}: its settings do not fit its values ({error})"
            yield Finding("layout", what, f"task {task.name}, class {task.of}", "see ringwright.model.values")


def _require_layouts(work: Work, reads: Sequence[Value], writes: Sequence[Value], sizes: Mapping[str, int]) -> None:
    if work.meaning == "cut":
        cut(work.settings, reads[0], writes, sizes)
    elif work.meaning == "join":
        cut(work.settings, writes[0], reads, sizes)
    elif work.meaning == FUSED:
        for part in parts_of(work.settings, reads, writes):
            if part.reads and part.writes:
                _require_layouts(part.work, part.reads, part.writes, sizes)
    else:
        written(work.meaning, work.settings, reads, writes[0], sizes)


# What a payload's source and result are along its axes. Others (send-recv, shift, push and pull) move values as they are.
_CONVERSIONS = {
    "all-reduce": (PARTIAL, None),
    "reduce-scatter": (PARTIAL, SLICED),
    "all-gather": (SLICED, None),
    "all-to-all": (SLICED, SLICED),
}


def waits(workload: Workload) -> Iterator[Finding]:
    """Yield readers that do not wait for what they read, and payloads that do not turn their source into their result.

    A task waits for another one through others too: what is kept for backward needs no edge of its own.
    """
    if not workload.values:
        return
    writers = {name: task.name for task in workload.tasks for name in task.writes}
    sent = {payload.result: payload for payload in workload.payloads if payload.result}
    edges = {(edge.src, edge.dst, edge.distance) for edge in workload.edges}
    reach = Reach(workload)
    for task in workload.tasks:
        for name, distance in task.reads:
            writer = writers.get(name)
            if writer not in (None, task.name) and (writer, task.name, distance) not in edges:
                if not reach.waits(task.name, writer, distance):
                    what = f"{task.name} reads {name} and does not wait for {writer}, which writes it"
                    yield Finding("wait", what, f"task {task.name}, class {task.of}", "an edge between them")
            elif name in sent and not _arrives(task, sent[name], distance, reach):
                what = f"{task.name} reads {name} and does not wait for {sent[name].name}, which brings it"
                yield Finding("wait", what, f"task {task.name}, class {task.of}", "name it as a consumer")
    yield from _payloads(workload, writers, reach)
    if any(task.lag for task in workload.tasks) or any(payload.lag for payload in workload.payloads):
        yield from _steps(workload)


def _payloads(workload: Workload, writers: Mapping[str, str], reach: Reach) -> Iterator[Finding]:
    for payload in workload.payloads:
        writer = writers.get(payload.source)
        if writer is not None and not any(_follows(name, writer, reach) for name in payload.producers):
            what = f"{payload.name} carries {payload.source} and does not wait for {writer}, which writes it"
            yield Finding("wait", what, f"payload {payload.name}", "name it as a producer")
        if payload.source in workload.value and payload.result in workload.value:
            yield from _conversion(workload, payload)


def _steps(workload: Workload) -> Iterator[Finding]:
    """Yield tasks and payloads that work for one step on what another step has yet to write, or keep it too long."""
    lags = {name: task.lag for task in workload.tasks for name in task.writes}
    lags |= {payload.result: payload.lag for payload in workload.payloads if payload.result}
    for task in workload.tasks:
        for name, distance in task.reads:
            if distance + lags.get(name, task.lag) < task.lag:
                what = f"{task.name} does the work of {task.lag} steps before with {name} of a step behind that"
                yield Finding("wait", what, f"task {task.name}, class {task.of}", "read it of an earlier step")
    ahead = [each.name for each in workload.tasks if each.lag < 0]
    for name in [*ahead, *(each.name for each in workload.payloads if each.lag < 0)]:
        yield Finding("wait", f"{name} does the work of a later step", name, "a lag of 0 or more")
    for payload in workload.payloads:
        if lags.get(payload.source, payload.lag) != payload.lag:
            what = f"{payload.name} carries {payload.source}, which is of another step than its own (lag {payload.lag})"
            yield Finding("wait", what, f"payload {payload.name}", "a task between them that keeps the value")


def _arrives(task: Task, payload: Payload, distance: int, reach: Reach) -> bool:
    """Whether a task is a consumer of a payload, or waits for one that is."""
    return any(
        (name == task.name and far == distance) or (far <= distance and reach.waits(task.name, name, distance - far))
        for name, far in payload.consumers
    )


def _follows(producer: str, writer: str, reach: Reach) -> bool:
    """Whether a producer is the writer, or waits for it, perhaps for that of the step before."""
    return producer == writer or reach.waits(producer, writer, 0) or reach.waits(producer, writer, 1)


def _conversion(workload: Workload, payload: Payload) -> Iterator[Finding]:
    before, after = workload.value[payload.source], workload.value[payload.result]
    wanted = _CONVERSIONS.get(payload.op)
    if wanted is None:
        return
    where = f"payload {payload.name}"
    for axis in payload.axes:
        for value, how in zip((before, after), wanted, strict=True):
            lies = value.along(axis)
            if (lies.how if lies else None) != how:
                told = lies.how if lies else "replicated"
                what = f"{value.name} is {told} along {axis}, before an {payload.op} or after it"
                yield Finding("layout", what, where, f"{how or 'replicated'} along {axis}")
                return
    others = {axis for axis in workload.mesh.sizes if axis not in payload.axes}
    if any(before.along(axis) != after.along(axis) for axis in others):
        what = f"{payload.name} changes how {payload.source} lies along an axis that it does not go along"
        yield Finding("layout", what, where, f"axes: {', '.join(payload.axes)}")
    if LOCAL in {each.how for each in before.layout if each.axis in payload.axes}:
        yield Finding("layout", f"{payload.source} is local", where, "values that belong together")
    yield from _order_of_blocks(workload, payload, where)


def _order_of_blocks(workload: Workload, payload: Payload, where: str) -> Iterator[Finding]:
    sliced = [
        value.axes(SLICED, each.dim)
        for value in (workload.value[payload.source], workload.value[payload.result])
        for each in value.layout
        if each.how == SLICED and each.axis in payload.axes
    ]
    order = tuple(axis for axis in workload.mesh.sizes if axis in payload.axes)
    for axes in sliced:
        inner = axes[len(axes) - len(order) :]
        if inner != order:
            what = f"blocks of {payload.name} lie by {', '.join(axes)}, ranks of its group by {', '.join(order)}"
            yield Finding("layout", what, where, "permute the blocks")
            return
