"""O: a task and the operation beside it change places, so that it works on a share of the data, or the operation sends less.

A point-wise function works on slices as well as on the whole (its other operands are sliced along); rows that are not cut may be
worked on before they are gathered (sequence parallelism); linear functions work on terms of a sum as well as on the sum.
"""

from __future__ import annotations

from ringwright.graph.algebra.editing import StepGraph, dims_of, placed, sent_bytes, times_of
from ringwright.graph.algebra.rule import Refused, payload_at, rule, task_at
from ringwright.graph.algebra.shares import share_of
from ringwright.graph.algebra.split_collective import sliced_by
from ringwright.model.validity.layouts import LINEAR
from ringwright.model.values import PARTIAL, SLICED, Change, Placement, Value
from ringwright.model.workload import Payload, Task


def _only_reader(graph: StepGraph, payload: Payload, task: Task) -> None:
    others = [each.name for each in graph.readers(payload.result) if each.name != task.name]
    if others:
        raise Refused(f"{others[0]} reads {payload.result} too", "a value that one task reads")


def _gather_into(graph: StepGraph, task: Task) -> Payload:
    """Return the all-gather whose result a task reads."""
    for name, distance in task.reads:
        node = graph.writer(name)
        if isinstance(node, Payload) and node.op == "all-gather" and not distance:
            return node
    raise Refused("it reads nothing that is gathered", "a task behind an all-gather")


@rule("before-gather", "f(AG x, y) = AG f(x, slice y) of a point-wise f, or of rows that are not cut")
def before_gather(graph: StepGraph, at: str) -> Change:
    """Let a task work on the slices, and gather what it makes."""
    task = task_at(graph, at, "pointwise", "rowwise")
    gather = _gather_into(graph, task)
    _only_reader(graph, gather, task)
    assert task.work is not None  # noqa: S101 - task_at has looked
    if task.work.settings.get("fn") == "dropout" and task.work.settings.get("keyed") != "position":
        raise Refused(
            "it draws by place: slices would draw anew", "a function of its operands alone, or keyed=position"
        )
    source, whole = graph.values[gather.source], graph.values[gather.result]
    dim = sliced_by(source, gather)
    if task.work.meaning == "rowwise" and task.work.settings.get("along") == dim:
        raise Refused(f"it needs all of {dim} at once", f"rows along another dimension than {dim}")
    if len(task.writes) != 1:
        raise Refused("it writes several values", "one value")
    cuts = tuple(each for each in source.layout if each.axis in gather.axes)
    reads = []
    for name, distance in task.reads:
        value = graph.values[name]
        if name == gather.result:
            reads.append((source.name, distance))
        elif dim in dims_of(value):
            reads.append((sliced_operand(graph, task, value, cuts, distance).name, 0))
        else:
            reads.append((name, distance))
    out = graph.values[task.writes[0]]
    part = graph.value(out, f"{out.name}.slice", layout=placed(out.layout, gather.axes, *cuts))
    ranks = graph.extent(gather.axes)
    saved = (task.work.flops - task.work.flops / ranks) * times_of(graph, task)
    graph.change(task, reads=tuple(reads), writes=(part.name,), **share_of(task, 1 / ranks))
    graph.send(gather, f"{out.name}.gather", "all-gather", part, out)
    graph.drop(gather)
    more = (ranks - 1) / ranks * (out.size_bytes - whole.size_bytes) * times_of(graph, gather)
    held = part.size_bytes + sum(graph.values[name].size_bytes for name, _ in reads)
    return Change({gather.role: more} if more else {}, 0, -saved, held)


def sliced_operand(graph: StepGraph, task: Task, value: Value, cuts: tuple[Placement, ...], distance: int) -> Value:
    """Return the slices of an operand that all ranks have whole; it costs nothing."""
    held = value
    for cut in cuts:
        if value.along(cut.axis):
            raise Refused(f"{value.name} is not whole along {cut.axis}", "an operand that all ranks have")
        made = graph.value(held, f"{value.name}.slice", layout=(*held.layout, cut))
        copy = graph.copying(
            f"{task.name}.slice.{value.name}", task, "slice", {"axis": cut.axis, "dim": cut.dim}, [held], [made]
        )
        graph.change(copy, reads=((held.name, distance),))
        held, distance = made, 0
    return held


@rule("after-gather", "AG f(x, y) = f(AG x, AG y): before-gather backwards, where f has one operand")
def after_gather(graph: StepGraph, at: str) -> Change:
    """Gather what a task works on instead of what it makes, which all ranks then make."""
    task = task_at(graph, at, "pointwise", "rowwise")
    assert task.work is not None  # noqa: S101 - task_at has looked
    gather = next(iter(graph.readers(task.writes[0])), None)
    if not isinstance(gather, Payload) or gather.op != "all-gather" or len(graph.readers(task.writes[0])) > 1:
        raise Refused("what it makes is not gathered, and by nobody else", "a task before an all-gather")
    if len(task.reads) != 1 or task.reads[0][1]:
        raise Refused("it has several operands, or one of an earlier step", "a function of one value")
    source, part, out = graph.values[task.reads[0][0]], graph.values[gather.source], graph.values[gather.result]
    whole = graph.value(source, f"{source.name}.whole", layout=placed(source.layout, gather.axes))
    ranks = graph.extent(gather.axes)
    graph.send(gather, f"{source.name}.gather", "all-gather", source, whole)
    flops = task.work.flops * (ranks - 1) * times_of(graph, task)
    graph.change(task, reads=((whole.name, 0),), writes=(out.name,), **share_of(task, ranks))
    graph.drop(gather)
    more = (ranks - 1) / ranks * (whole.size_bytes - out.size_bytes) * times_of(graph, gather)
    return Change(
        {gather.role: more} if more else {}, 0, flops, max(0, whole.size_bytes - part.size_bytes) + whole.size_bytes
    )


@rule("through-sum", "f(AR x) = AR f(x) of a linear f, and of a reduce-scatter; forward or backward")
def through_sum(graph: StepGraph, at: str) -> Change:
    """Move a linear task from behind a sum to before it, or from before it to behind it."""
    task = task_at(graph, at, "pointwise")
    assert task.work is not None  # noqa: S101 - task_at has looked
    fn = str(task.work.settings.get("fn"))
    if fn not in LINEAR:
        raise Refused(f"{fn} of a sum is not the sum of {fn}", f"a linear function: {', '.join(LINEAR)}")
    if len(task.reads) != 1 or task.reads[0][1] or len(task.writes) != 1:
        raise Refused("it has several operands, or one of an earlier step", "a function of one value")
    node = graph.writer(task.reads[0][0])
    if isinstance(node, Payload) and node.op in ("all-reduce", "reduce-scatter"):
        _only_reader(graph, node, task)
        return _swap(graph, task, node, behind=False)
    readers = graph.readers(task.writes[0])
    if len(readers) == 1 and isinstance(readers[0], Payload) and readers[0].op in ("all-reduce", "reduce-scatter"):
        return _swap(graph, task, readers[0], behind=True)
    raise Refused("there is no sum before it or behind it", "a task beside an all-reduce or a reduce-scatter")


def _swap(graph: StepGraph, task: Task, payload: Payload, *, behind: bool) -> Change:
    """Let the task work behind the sum instead of before it, or before it instead of behind it."""
    first, last = (task.reads[0][0], payload.result) if behind else (payload.source, task.writes[0])
    source, result = graph.values[first], graph.values[last]
    lies, like = (result.layout, source) if behind else (source.layout, result)
    middle = graph.value(like, f"{task.name}.{'in' if behind else 'out'}", layout=lies)
    ranks = graph.extent(payload.axes)
    share = 1.0 if payload.op == "all-reduce" else (1 / ranks if behind else float(ranks))
    flops = (task.work.flops if task.work else 0.0) * (share - 1) * times_of(graph, task)
    reads, writes = (middle.name, result.name) if behind else (source.name, middle.name)
    graph.change(task, reads=((reads, 0),), writes=(writes,), **share_of(task, share))
    ends = (source, middle) if behind else (middle, result)
    sent = sent_bytes(payload.op, *ends)
    graph.change(payload, source=ends[0].name, result=ends[1].name, size_bytes=sent)
    factor = (2 if payload.op == "all-reduce" else 1) * (ranks - 1) / ranks
    more = factor * (sent - payload.size_bytes) * times_of(graph, payload)
    return Change({payload.role: more} if more else {}, 0, flops, middle.size_bytes)


@rule("add-once", "AR(x) + b = AR(x + b on the first rank)")
def add_once(graph: StepGraph, at: str) -> Change:
    """Move a bias from behind a sum to before it, where one rank adds it: added on all, it would count p times."""
    task = task_at(graph, at, "pointwise")
    assert task.work is not None  # noqa: S101 - task_at has looked
    if task.work.settings.get("fn") != "add" or len(task.reads) != 2:
        raise Refused("it does not add two values", "a task that adds a bias")
    node = graph.writer(task.reads[0][0])
    if not isinstance(node, Payload) or node.op != "all-reduce" or len(node.axes) != 1:
        raise Refused("its first operand is no all-reduce along one axis", "a task behind an all-reduce")
    _only_reader(graph, node, task)
    source, result, axis = graph.values[node.source], graph.values[task.writes[0]], node.axes[0]
    if source.along(axis) != Placement(axis, PARTIAL):
        raise Refused(f"{source.name} is no sum along {axis}", "a sum")
    made = graph.value(result, f"{result.name}.terms", layout=source.layout)
    settings = {**task.work.settings, "fn": "add-once", "axis": axis}
    work = share_of(task, 1.0)["work"]
    graph.change(
        task,
        reads=((source.name, 0), task.reads[1]),
        writes=(made.name,),
        work=type(work)(work.flops, work.read_bytes, work.written_bytes, "pointwise", settings, work.cuts),
    )
    graph.change(node, source=made.name, result=result.name)
    return Change({}, 0, 0.0, made.size_bytes)


@rule("sum-before-gather", "sum(AG x) = AR(sum x), along the dimension that is gathered")
def sum_before_gather(graph: StepGraph, at: str) -> Change:
    """Add up each rank's slice and sum over ranks, instead of gathering all first: a norm, a clip, a trust ratio."""
    task = task_at(graph, at, "sum")
    gather = _gather_into(graph, task)
    _only_reader(graph, gather, task)
    source, whole, out = graph.values[gather.source], graph.values[gather.result], graph.values[task.writes[0]]
    assert task.work is not None  # noqa: S101 - task_at has looked
    if task.work.settings.get("along") != sliced_by(source, gather):
        raise Refused(f"it adds up {task.work.settings.get('along')}, which is not what is gathered", "before-gather")
    ranks = graph.extent(gather.axes)
    terms = tuple(Placement(axis, PARTIAL) for axis in gather.axes)
    part = graph.value(out, f"{out.name}.terms", layout=placed(out.layout, gather.axes, *terms))
    saved = task.work.flops * (1 - 1 / ranks) * times_of(graph, task)
    graph.change(task, reads=((source.name, 0),), writes=(part.name,), **share_of(task, 1 / ranks))
    graph.send(gather, f"{out.name}.sum", "all-reduce", part, out)
    graph.drop(gather)
    more = (ranks - 1) / ranks * (2 * out.size_bytes - whole.size_bytes) * times_of(graph, gather)
    return Change({gather.role: more}, 0, -saved, part.size_bytes)


@rule("shard-update", "w - f(AR g) = AG(slice w - f(RS g)): split-all-reduce, then before-gather")
def shard_update(graph: StepGraph, at: str, dim: str = "") -> Change:
    """Let each rank update its slice of the parameters, and gather these instead of the gradients (ZeRO stage 1)."""
    from ringwright.graph.algebra.split_collective import split_all_reduce

    payload = payload_at(graph, at, "all-reduce")
    readers = graph.readers(payload.result)
    task = readers[0] if len(readers) == 1 else None
    if not isinstance(task, Task) or not task.work or task.work.meaning != "pointwise":
        raise Refused("no element-wise update reads it, and nobody else", "a gradient that one update reads")
    size = dims_of(graph.values[payload.source])
    along = dim or next((name for name in size if not graph.values[payload.source].axes(SLICED, name)), "")
    if along in size and size[along] % graph.extent(payload.axes):
        raise Refused(f"{along} is {size[along]}, which the ranks do not share out evenly", "pad the parameters")
    one = split_all_reduce.edit(graph, at, dim)
    two = before_gather.edit(graph, task.name)
    wire = {
        role: one.wire_bytes.get(role, 0.0) + two.wire_bytes.get(role, 0.0)
        for role in {*one.wire_bytes, *two.wire_bytes}
    }
    return Change(
        {role: each for role, each in wire.items() if each},
        one.operations + two.operations,
        one.flops + two.flops,
        one.held_bytes + two.held_bytes,
    )
