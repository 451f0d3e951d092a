"""F: several operations become one on their values side by side, and what it makes is taken apart again; or several tasks do.

Sums may lie one behind the other. What is scattered or gathered must lie by rank: for each rank its block of every value; one
behind the other, ranks would get other slices. Of tasks that are one kernel, what only they read never leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from ringwright.graph.algebra.editing import COPIES, StepGraph, dims_of, times_of
from ringwright.graph.algebra.rule import Refused, payload_at, rule, task_at
from ringwright.graph.algebra.waits import Node
from ringwright.model.values import FUSED, KEPT, SLICED, Change, Placement, Value, Work
from ringwright.model.workload import Payload, Task

JOINED = ("all-reduce", "reduce-scatter", "all-gather")


@rule("fuse", "AR(u) beside AR(v) = AR(u beside v); scattered or gathered: u and v beside each other rank by rank")
def fuse(graph: StepGraph, at: str, others: str | Sequence[str]) -> Change:
    """Make one operation of this one and ``others``: same group, operation and type of elements."""
    names = list(dict.fromkeys([at, *(others.split(",") if isinstance(others, str) else others)]))
    if len(names) < 2:
        raise Refused("there is nothing to fuse it with", "others: names of operations")
    members = [payload_at(graph, name, *JOINED) for name in names]
    first = members[0]
    for each in members[1:]:
        if (each.op, each.axes, each.of, each.per, each.dtype) != (
            first.op,
            first.axes,
            first.of,
            first.per,
            first.dtype,
        ):
            raise Refused(f"{each.name} is of another operation, group, class or type", "operations that are alike")
    sources = [graph.values[each.source] for each in members]
    results = [graph.values[each.result] for each in members]
    if any(len(value.dims) != 1 for value in (*sources, *results)):
        raise Refused("values of several dimensions lie beside each other in no one way", "values of one dimension")
    _apart(graph, members)
    joined, along = _beside(graph, sources, f"{at}.fused.in")
    blocks = max(
        graph.extent(each.axes(SLICED)) for each in (sources[0], results[0])
    )  # a rank's own lie beside each other
    settings = {"along": along, "blocks": blocks, "parts": [value.dims[0][1] for value in sources]}
    graph.copying(f"{at}.join", first, "join", settings, sources, [joined])
    made, _ = _beside(graph, results, f"{at}.fused.out", along)
    op = graph.send(first, f"{at}.fused", first.op, joined, made, elements=sum(each.elements for each in members))
    graph.copying(f"{at}.parts", first, "cut", settings, [made], results)
    for each in members:
        graph.waits.inherit(op, each, producers=True, consumers=True)
        graph.drop(each)
    held = joined.size_bytes + made.size_bytes
    return Change({}, (1 - len(members)) * times_of(graph, first), 0.0, held)


def _apart(graph: StepGraph, members: list[Payload]) -> None:
    """Refuse operations of which one needs what another brings: together, they would wait for themselves.

    Looked at are what they need and what needs them, in turns: who has seen all of one of both knows.
    """
    names = {each.name for each in members}
    for _ in zip(_what_they_need(graph, members, names), _what_needs_them(graph, members, names), strict=False):
        pass


def _what_they_need(graph: StepGraph, members: list[Payload], names: set[str]) -> Iterator[None]:
    """Walk back from operations, until all is seen; Refused for one that is met."""
    todo = [each.source for each in members]
    seen = set(todo)
    while todo:
        node = graph.writer(todo.pop())
        if node is None:
            continue
        if node.name in names:
            raise Refused(f"one of them needs what {node.name} brings", "operations that do not wait for each other")
        reads = [node.source] if isinstance(node, Payload) else [name for name, distance in node.reads if not distance]
        todo += [name for name in reads if name not in seen]
        seen.update(reads)
        yield


def _what_needs_them(graph: StepGraph, members: list[Payload], names: set[str]) -> Iterator[None]:
    """Walk on from operations, until all is seen, or for ever where one of them is met: the walk back says which."""
    todo = [each.result for each in members]
    seen = set(todo)
    while todo:
        for node in _readers(graph, todo.pop()):
            if node.name in names:
                yield from repeat(None)
            writes = [node.result] if isinstance(node, Payload) else list(node.writes)
            todo += [name for name in writes if name not in seen]
            seen.update(writes)
        yield


def _beside(graph: StepGraph, values: list[Value], name: str, along: str = "") -> tuple[Value, str]:
    """Return a value that holds several one-dimensional ones, and its dimension."""
    first = values[0]
    along = along or "+".join(dict.fromkeys(value.dims[0][0] for value in values))
    layout = tuple(Placement(e.axis, e.how, along if e.how == SLICED else "") for e in first.layout)
    for value in values[1:]:
        mine = [(each.axis, each.how) for each in value.layout]
        if mine != [(each.axis, each.how) for each in first.layout]:
            raise Refused(f"{value.name} lies otherwise than {first.name}", "values that lie alike")
    size = sum(dims_of(value)[value.dims[0][0]] for value in values)
    total = sum(value.size_bytes for value in values)
    return graph.value(first, name, dims=((along, size),), layout=layout, size_bytes=total), along


# --------------------------------------------------------------------------------------------------------------- tasks
@rule("fuse-tasks", "g(f(x), y) = one kernel of f and g: what only g reads of f never leaves it")
def fuse_tasks(graph: StepGraph, at: str, others: str | Sequence[str], saved_us: float = 0.0) -> Change:
    """Make one task of this one and ``others``, which read of each other or of the same; it is ``saved_us`` shorter."""
    names = {at, *(others.split(",") if isinstance(others, str) else others)}
    chosen = {name: task_at(graph, name) for name in sorted(names)}
    graph.settle()
    members = [task for task in graph.tasks.values() if task.name in chosen]
    _alike(members)
    _in_one_go(graph, members)
    written = [name for task in members for name in task.writes]
    inner = [name for name in written if _stays_inside(graph, name, members)]
    seconds = sum(task.seconds for task in members) - saved_us * 1e-6
    if saved_us < 0 or seconds < 0:
        raise Refused(
            f"one kernel saves {saved_us:g} us of {sum(t.seconds for t in members) * 1e6:g}", "saved_us: less"
        )
    reads = tuple(dict.fromkeys(each for task in members for each in task.reads if each[1] or each[0] not in written))
    writes = tuple(name for name in written if name not in inner)
    last, work = members[-1], _whole(graph, members, reads, writes, inner)
    demands = dict[str, float]()
    for name, amount in (each for task in members for each in task.demands):
        demands[name] = demands.get(name, 0.0) + amount
    made = Task(
        graph.fresh(f"{at}.fused"),
        *(last.of, last.kind, seconds, last.layer, last.slot, last.per, last.stream, last.tag),
        tuple(demands.items()),
        reads,
        writes,
        work,
        last.lag,
    )
    graph.add(made, last)
    for task in members:
        graph.drop(task, [made])
    return Change({}, 0, 0.0, 0)


def _alike(members: list[Task]) -> None:
    """Refuse what cannot be one launch of one stream."""
    if len(members) < 2:
        raise Refused("there is nothing to fuse it with", "others: names of tasks")
    first = members[0]
    for task in members:
        if task.kind == COPIES:
            raise Refused(f"{task.name} only says which bytes are which", "tasks that take time")
        if not (task.work and task.writes):
            raise Refused(f"nothing says what {task.name} writes", "tasks with values and work")
        when = [(t.of, t.kind, t.slot, t.per, t.stream, t.tag, t.lag) for t in (first, task)]
        if when[0] != when[1]:
            raise Refused(
                f"{task.name} runs at another time or place than {first.name}", "tasks of one slot and stream"
            )


def _in_one_go(graph: StepGraph, members: list[Task]) -> None:
    """Refuse tasks that do not read of each other, and those between which somebody else must work."""
    names = {task.name for task in members}
    made = {name for task in members for name in task.writes}
    _connected(members)
    behind = _behind(graph, made, names)
    if behind & names:
        raise Refused(f"{min(behind & names)} needs what others make of the first ones", "all of them, or fewer")
    listed = list(graph.tasks)
    between = set(listed[listed.index(members[0].name) : listed.index(members[-1].name)]) - names
    early = {name for name in between & behind if graph.tasks[name].slot == members[0].slot}
    if early:
        raise Refused(f"{min(early)} comes before the last of them and needs the first", "another order first: move")


def _connected(members: list[Task]) -> None:
    """Refuse tasks that have no value in common: they are kernels of their own."""
    ends = [{*(name for name, distance in task.reads if not distance), *task.writes} for task in members]
    joined, apart = set(ends[0]), list(range(1, len(members)))
    while near := [at for at in apart if ends[at] & joined]:
        joined |= set().union(*(ends[at] for at in near))
        apart = [at for at in apart if at not in near]
    if apart:
        what = f"{members[apart[0]].name} reads nothing that another one reads or writes"
        raise Refused(what, "tasks that read of each other, or of the same")


def _behind(graph: StepGraph, values: set[str], names: set[str]) -> set[str]:
    """Return the tasks that wait in the same step for one of these values through somebody outside, or are outside."""
    reached, todo = set[str](), [(name, False) for name in values]
    while todo:
        value, outside = todo.pop()
        for node in _readers(graph, value):
            if node.name in reached or (node.name in names and not outside):
                continue
            reached.add(node.name)
            todo += [(name, True) for name in ((node.result,) if isinstance(node, Payload) else node.writes)]
    return reached


def _readers(graph: StepGraph, value: str) -> list[Node]:
    """Return who reads a value in the step in which it is written."""
    return [node for node in graph.readers(value) if isinstance(node, Payload) or (value, 0) in node.reads]


def _stays_inside(graph: StepGraph, name: str, members: list[Task]) -> bool:
    """Return whether only these tasks read a value; Refused for a sum over micro-batches that one of them reads."""
    readers, value = graph.readers(name), graph.values[name]
    inside = [node for node in readers if node in members]
    if inside and value.per != members[0].per:
        raise Refused(f"{name} is a sum over micro-batches, and {inside[0].name} reads it", "tasks before the sum")
    late = any(distance for task in members for each, distance in task.reads if each == name)
    return bool(readers) and inside == readers and not late and value.kind not in KEPT


def _whole(graph: StepGraph, members: list[Task], reads: Any, writes: Sequence[str], inner: Sequence[str]) -> Work:
    """Return the work of all, part by part; what lies between is neither written nor read."""
    between = [
        (value.name, value.dims, tuple((each.axis, each.how, each.dim) for each in value.layout))
        for value in (graph.values[name] for name in inner)
    ]
    between += [each for task in members for each in _settings(task).get("between", ())]
    inside = {name: -1 - at for at, (name, _, _) in enumerate(between)}
    known = {each: at for at, each in enumerate(reads)}
    parts: list[Any] = []
    for meaning, settings, takes, makes in (part for task in members for part in _parts(task)):
        made = tuple(writes.index(name) if name in writes else inside[name] for name in makes)
        parts.append((meaning, settings, tuple(known[each] for each in takes), made))
        known |= {(name, 0): len(known) + at for at, name in enumerate(makes)}
    works = [task.work or Work() for task in members]
    read_inside = [graph.values[n].size_bytes for t in members for n, late in t.reads if (n, late) not in reads]
    unwritten = sum(graph.values[name].size_bytes for name in inner)
    return Work(
        sum(work.flops for work in works),
        max(0, sum(work.read_bytes for work in works) - sum(read_inside)),
        max(0, sum(work.written_bytes for work in works) - unwritten),
        FUSED,
        {"parts": parts, "between": between},
    )


def _settings(task: Task) -> Mapping[str, Any]:
    return task.work.settings if task.work else {}


def _parts(task: Task) -> list[tuple[str, Any, Sequence[tuple[str, int]], Sequence[str]]]:
    """Return the parts of a task, a kernel's own or itself: meaning, settings, what it reads and writes by name."""
    work = task.work or Work()
    if work.meaning != FUSED:
        if work.parts:
            raise Refused(f"{task.name} is several kernels already", f"'open' at {task.name} first")
        along = tuple(sorted(work.cuts))
        settings = work.settings if work.meaning else {"same_as": task.name, "along": along, **work.settings}
        return [(work.meaning, _frozen(dict(settings)), task.reads, task.writes)]
    there = list(task.reads)
    parts: list[tuple[str, Any, Sequence[tuple[str, int]], Sequence[str]]] = []
    for meaning, settings, takes, makes in work.settings["parts"]:
        made = [task.writes[at] if at >= 0 else work.settings["between"][-1 - at][0] for at in makes]
        parts.append((meaning, settings, [there[at] for at in takes], made))
        there += [(name, 0) for name in made]
    return parts


def _frozen(setting: Any) -> Any:
    """Return a setting with tuples for lists, as settings within settings are kept."""
    if isinstance(setting, dict):
        return {name: _frozen(each) for name, each in setting.items()}
    return tuple(map(_frozen, setting)) if isinstance(setting, list | tuple) else setting
