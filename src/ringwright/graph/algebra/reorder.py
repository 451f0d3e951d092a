"""O, several at once: a gather moves behind the computations that read it, states are kept in slices, messages carry slices.

Source: Jangda et al., ASPLOS 2022 (CoCoNet): reorder and asSlice. Also its fusion of computations with the operations beside
them: the point-wise code runs in the operation's kernel, where a sum has arrived or before it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ringwright.graph.algebra.commute import sliced_operand
from ringwright.graph.algebra.editing import StepGraph, dims_of, placed, sent_bytes, times_of
from ringwright.graph.algebra.rule import Refused, payload_at, rule, task_at
from ringwright.graph.algebra.shares import share_of
from ringwright.graph.algebra.split_collective import sliced_by
from ringwright.graph.algebra.waits import Node
from ringwright.model.values import KEPT, LOCAL, PARTIAL, SLICED, Change, Placement, Value, Work
from ringwright.model.workload import Payload, Task

MOVED = ("pointwise", "rowwise", "sum", "slice")


@rule("reorder", "f(AG x, y) = AG f(x, slice y), of several f that read of each other")
def reorder(graph: StepGraph, at: str, over: str | Sequence[str]) -> Change:
    """Move a gather behind computations: those that read what it brings, and what lies between, work on slices."""
    gather = payload_at(graph, at, "all-gather")
    names = set(over.split(",") if isinstance(over, str) else over)
    members = [task_at(graph, name) for name in sorted(names)]
    if len(members) > 1:
        graph.settle()
        members = [task for task in graph.tasks.values() if task.name in names]
    moving = _Moving(graph, gather, members)
    for task in members:
        moving.move(task)
    return moving.ended()


class _Moving:
    """A gather on its way behind tasks: which values are there in slices, and what has changed."""

    def __init__(self, graph: StepGraph, gather: Payload, members: list[Task]) -> None:
        self.graph, self.gather = graph, gather
        self.names = {task.name for task in members}
        self.source, self.whole = graph.values[gather.source], graph.values[gather.result]
        self.dim, self.ranks = sliced_by(self.source, gather), graph.extent(gather.axes)
        self.cuts = tuple(each for each in self.source.layout if each.axis in gather.axes)
        self.slices = {self.whole.name: self.source}
        self.gathered = _reached(graph, self.whole.name)
        self.sent = -sent_bytes("all-gather", self.source, self.whole)
        self.summed, self.operations, self.saved, self.held = 0, -1, 0.0, self.source.size_bytes
        if not any((self.whole.name, 0) in task.reads for task in members):
            raise Refused("none of them reads what it brings", f"over: who reads {self.whole.name}")

    def move(self, task: Task) -> None:
        """Let a task work on slices."""
        self._check(task)
        if not any(name in self.slices and not distance for name, distance in task.reads) and not self._is_inside(task):
            return  # of numbers that all ranks have
        reads = tuple(self._operand(task, name, distance) for name, distance in task.reads)
        outs, share = [self.graph.values[name] for name in task.writes], 1 / self.ranks
        self.saved += (task.work.flops if task.work else 0.0) * (1 - share) * times_of(self.graph, task)
        made = [self._terms(out) if self._is_sum(task) else self._slice(out) for out in outs]
        self.held += sum(part.size_bytes for part in made)
        self.graph.change(task, reads=reads, writes=tuple(part.name for part in made), **share_of(task, share))

    def _terms(self, out: Value) -> Value:
        """Return what a rank adds up of its slice, of which the sum over ranks is taken."""
        terms = tuple(Placement(axis, PARTIAL) for axis in self.gather.axes)
        part = self.graph.value(out, f"{out.name}.terms", layout=placed(out.layout, self.gather.axes, *terms))
        self.graph.send(self.gather, f"{out.name}.sum", "all-reduce", part, out)
        self.summed, self.operations = self.summed + part.size_bytes, self.operations + 1
        return part

    def _slice(self, out: Value) -> Value:
        part = self.graph.value(out, f"{out.name}.slice", layout=placed(out.layout, self.gather.axes, *self.cuts))
        self.slices[out.name] = part
        return part

    def ended(self) -> Change:
        """Gather what others than the moved tasks read, or what is left behind, and take the gather out."""
        graph = self.graph
        outside = [node.name for node in graph.readers(self.whole.name)]
        if outside:
            raise Refused(f"{outside[0]} reads {self.whole.name} too", "move it as well")
        graph.drop(self.gather)
        for name, part in self.slices.items():
            out = graph.values[name]
            if name != self.whole.name and (graph.readers(name) or out.kind in KEPT or not graph.readers(part.name)):
                graph.send(self.gather, f"{name}.gather", "all-gather", part, out, dtype=out.dtype)
                self.sent, self.operations = self.sent + out.size_bytes, self.operations + 1
        times = times_of(graph, self.gather)
        more = (self.ranks - 1) / self.ranks * (self.sent + 2 * self.summed) * times
        return Change({self.gather.role: more} if more else {}, self.operations * times, -self.saved, self.held)

    def _check(self, task: Task) -> None:
        work = task.work or Work()
        if work.meaning not in MOVED and (work.meaning or self.dim not in work.cuts):
            known = f"{task.name} is '{work.meaning}'" if work.meaning else f"nobody knows what {task.name} computes"
            raise Refused(known, f"a task that is {' or '.join(MOVED)}, or may be cut along {self.dim}")
        if work.meaning and len(task.writes) != 1:
            raise Refused(f"{task.name} writes several values", "tasks that write one")
        if not work.meaning:
            self._check_rows(task)
        if work.settings.get("fn") == "dropout" and work.settings.get("keyed") != "position":
            raise Refused(f"{task.name} draws by rank: slices would draw anew", "keyed=position")
        if work.meaning == "rowwise" and work.settings.get("along") == self.dim:
            raise Refused(
                f"{task.name} needs all of {self.dim} at once", f"rows along another dimension than {self.dim}"
            )
        self._check_reads(task)

    def _check_reads(self, task: Task) -> None:
        for name, distance in task.reads:
            value, writer = self.graph.values[name], self.graph.writer(name)
            held = [value.along(axis) for axis in self.gather.axes]
            if name not in self.slices and any(each and each.how in (LOCAL, PARTIAL) for each in held):
                raise Refused(f"{task.name} reads {name}, which each rank has its own of", "no local operands")
            between = writer is not None and not distance and name in self.gathered and name not in self.slices
            if between and writer is not None and writer.name not in self.names and isinstance(writer, Task):
                raise Refused(f"{writer.name} lies between and is not moved", f"over: {writer.name} too")

    def _check_rows(self, task: Task) -> None:
        """Refuse a task that may be cut where slices of what it reads and writes are not slices of the same rows."""
        size = dims_of(self.whole)[self.dim]
        for name in (*(name for name, _ in task.reads), *task.writes):
            held = dims_of(self.graph.values[name]).get(self.dim)
            if held is None and name in task.writes:
                raise Refused(f"{name} has no {self.dim}: it is a sum over slices", "a task that writes slices alone")
            if held not in (None, size):
                what = f"{name} has {held} of {self.dim}, {self.whole.name} {size}"
                raise Refused(what, f"'open' at {task.name} first" if task.work and task.work.parts else "values alike")

    def _is_inside(self, task: Task) -> bool:
        """Return whether only tasks that move read what a task makes, of which there are slices."""
        readers = self.graph.readers(task.writes[0])
        inside = bool(readers) and all(isinstance(node, Task) and node.name in self.names for node in readers)
        return inside and self.dim in dims_of(self.graph.values[task.writes[0]])

    def _is_sum(self, task: Task) -> bool:
        return task.work is not None and task.work.meaning == "sum" and task.work.settings.get("along") == self.dim

    def _operand(self, task: Task, name: str, distance: int) -> tuple[str, int]:
        value = self.graph.values[name]
        if not distance and name in self.slices:
            return self.slices[name].name, 0
        if self.dim not in dims_of(value) or all(cut in value.layout for cut in self.cuts):
            return name, distance
        return sliced_operand(self.graph, task, value, self.cuts, distance).name, 0


def _reached(graph: StepGraph, name: str) -> set[str]:
    """Return the values that depend on one, within a step."""
    reached, todo = {name}, [name]
    while todo:
        value = todo.pop()
        for node in graph.readers(value):
            if isinstance(node, Task) and (value, 0) not in node.reads:
                continue
            new = [
                each for each in ((node.result,) if isinstance(node, Payload) else node.writes) if each not in reached
            ]
            reached |= set(new)
            todo += new
    return reached


@rule("as-slice", "slice y is y, where nobody needs more of it: each rank keeps its slice from step to step")
def as_slice(graph: StepGraph, at: str) -> Change:
    """Keep a state in slices: who sliced it reads it as it is, and the gather that made it whole is left out."""
    value = graph.values.get(at)
    if value is None or value.kind not in KEPT or (value.layout and any(each.how != SLICED for each in value.layout)):
        raise Refused("it is no state that all ranks hold", "a value of kind parameter or optimizer")
    gather = graph.writer(at)
    if not isinstance(gather, Payload) or gather.op != "all-gather":
        raise Refused("what is written is not gathered", "a state behind a reordered gather")
    sliced = [_sliced_along(graph, node, gather) for node in graph.readers(at)]
    part = graph.values[gather.source]
    writer, times = graph.writer(part.name), times_of(graph, gather)
    if not isinstance(writer, Task):
        raise Refused(f"no task writes {part.name}", "a state that is computed in slices")
    graph.drop(gather)
    graph.values[at] = replace(part, name=at, kind=value.kind)
    graph.change(writer, writes=tuple(at if name == part.name else name for name in writer.writes))
    _read_instead(graph, part.name, at, 0)
    for nodes in sliced:
        _read_instead(graph, nodes[-1].writes[0], at, nodes[0].reads[0][1])
        for node in nodes:
            graph.drop(node)
    ranks = graph.extent(gather.axes)
    return Change({gather.role: -(ranks - 1) / ranks * value.size_bytes * times}, -times, 0.0, 0)


def _read_instead(graph: StepGraph, old: str, new: str, late: int) -> None:
    """Let those who read a value read another one, of so many steps before."""
    for node in graph.readers(old):
        if isinstance(node, Payload):
            graph.change(node, source=new)
        else:
            graph.change(node, reads=tuple((new, late) if name == old else (name, each) for name, each in node.reads))


def _sliced_along(graph: StepGraph, node: Node, gather: Payload) -> list[Task]:
    """Return the slices, one of each axis of a gather, that begin with this one; Refused for a node that needs more."""
    nodes = list[Task]()
    axes = set(gather.axes)
    while axes:
        work = node.work if isinstance(node, Task) else None
        axis = str(work.settings.get("axis")) if work is not None and work.meaning == "slice" else ""
        if not isinstance(node, Task) or axis not in axes:
            raise Refused(f"{node.name} reads all of it", "a state that is only read in slices")
        axes.discard(axis)
        nodes.append(node)
        behind = graph.readers(node.writes[0])
        if axes and len(behind) != 1:
            raise Refused(f"{node.name} is read in larger slices", "a state that is only read in slices")
        node = behind[0] if axes else node
    return nodes


@rule("send-before-gather", "P2P AG x = AG P2P x: each rank sends its slice, which is gathered where it arrives")
def send_before_gather(graph: StepGraph, at: str) -> Change:
    """Send slices instead of what was gathered of them, and gather on the ranks that receive."""
    send = payload_at(graph, at, "send-recv")
    gather = graph.writer(send.source)
    if not isinstance(gather, Payload) or gather.op != "all-gather":
        raise Refused("what it sends is not gathered", "a message behind an all-gather")
    others = [node.name for node in graph.readers(send.source) if node.name != at]
    if others:
        raise Refused(f"{others[0]} reads {send.source} too", "a value that is only sent")
    source, out = graph.values[gather.source], graph.values[send.result]
    cuts = tuple(each for each in source.layout if each.axis in gather.axes)
    part = graph.value(out, f"{out.name}.slice", layout=placed(out.layout, gather.axes, *cuts))
    graph.drop(gather)
    graph.change(send, source=source.name, result=part.name, size_bytes=sent_bytes(send.op, source, part))
    graph.send(replace(gather, of=send.peer), f"{at}.gather", "all-gather", part, out)
    more = (source.size_bytes - out.size_bytes) * times_of(graph, send)
    return Change({send.role: more}, 0, 0.0, part.size_bytes)


@rule("fuse-collective", "C in the kernel of the operation before it, or behind it, or of both as one all-reduce")
def fuse_collective(graph: StepGraph, at: str, within: str | Sequence[str], saved_us: float = 0.0) -> Change:
    """Let a point-wise task run in the kernel of operations: on what arrives, or on what is sent. It is ``saved_us`` shorter."""
    task = task_at(graph, at)
    if not elementwise(task, graph.values):
        task_at(graph, at, "pointwise", "fused")
    names = list(dict.fromkeys(within.split(",") if isinstance(within, str) else within))
    chosen = [payload_at(graph, name, "reduce-scatter", "all-gather", "all-reduce") for name in names]
    before = [each for each in chosen if (each.result, 0) in task.reads]
    behind = [each for each in chosen if each.source in task.writes]
    _check_fused(chosen, before, behind)
    for each in before:
        others = [node.name for node in graph.readers(each.result) if node.name != at]
        if others:
            raise Refused(f"{others[0]} reads {each.result}, which would never leave the kernel", "all that reads it")
    if not 0 <= saved_us * 1e-6 <= task.seconds:
        raise Refused(f"one kernel saves {saved_us:g} us of {task.seconds * 1e6:g}", "saved_us: less")
    graph.change(task, stream=f"kernel of {chosen[0].name}", seconds=task.seconds - saved_us * 1e-6)
    return Change()


def _check_fused(chosen: list[Payload], before: list[Payload], behind: list[Payload]) -> None:
    if not chosen or len(before) + len(behind) < len(chosen):
        raise Refused(
            "they are not right before it or behind it", "within: what it reads of, or what sends what it writes"
        )
    if len({each.axes for each in chosen}) > 1 or len(before) > 1 or len({each.op for each in behind}) > 1:
        raise Refused(
            "a kernel does one operation, of one group", "within: a reduce-scatter, all-gathers, or both as one"
        )
    if before and behind and (before[0].op, behind[0].op) != ("reduce-scatter", "all-gather"):
        raise Refused("together they are no all-reduce", "within: a reduce-scatter and what gathers behind it")


def elementwise(task: Task, values: Mapping[str, Value]) -> bool:
    """Return whether a task of unknown meaning says that it may be cut along all dimensions of all that it writes."""
    work = task.work
    dims = {name for each in task.writes for name in dims_of(values[each])}
    return work is not None and not work.meaning and bool(dims) and dims <= set(work.cuts)
