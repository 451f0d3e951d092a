"""What a Workload's graph means: every task and operation carried out on small arrays of whole numbers, rank by rank.

Sums of integers do not depend on their order, so a graph that was rewritten must give the same numbers, to the bit. A task of
unknown meaning is a function that nobody knows anything of: what it writes depends on all that it reads.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from ringwright.errors import UsageError
from ringwright.values import KEPT, LOCAL, PARTIAL, SLICED, Value, Work
from ringwright.workload import Mesh, Payload, Task, Workload

Array = np.ndarray
Held = dict[int, Array]  # what each rank holds of a value: int64, in the order of the value's dimensions
Moment = tuple[str, int, int]  # value, step, micro-batch (0 of what is there once a step)
REACH = 4  # drawn numbers are between -REACH and REACH
MOST_ELEMENTS = 1 << 22
Carry = Callable[[Payload, Held, Workload], Held]


@dataclass(frozen=True)
class GraphRun:
    """What every rank holds of every value of every step: arrays int64 by (value, step, micro-batch), then by rank."""

    held: Mapping[Moment, Held]
    unread: tuple[str, ...]

    def of(self, name: str) -> dict[tuple[int, int], Held]:
        """Return what is held of a value, by (step, micro-batch)."""
        return {(step, batch): each for (value, step, batch), each in self.held.items() if value == name and step >= 0}


def carry_out(
    workload: Workload, *, steps: int = 2, seed: int = 0, rank: int | None = None, carry: Carry | None = None
) -> GraphRun:
    """Return what ``steps`` steps of the graph compute from inputs drawn by ``seed``; UsageError for what has no meaning.

    Inputs (values that nothing writes) are drawn by their names: two graphs with the same inputs begin alike. What a task of a
    later step is to do (``lag``) it does in the steps behind the last one, so that nothing is left undone. With a ``rank``, only
    that one's tasks are carried out, and ``carry`` does its operations: for ranks that are processes of their own.
    """
    return _Run(workload, (steps, seed), rank, carry or carried).done()


class _Run:
    def __init__(self, workload: Workload, drawn: tuple[int, int], rank: int | None, carry: Carry) -> None:
        self.workload, (self.steps, self.seed), self.carry = workload, drawn, carry
        self.mesh = workload.mesh
        self.held: dict[Moment, Held] = {}
        self.writer: dict[str, Task | Payload] = {name: task for task in workload.tasks for name in task.writes}
        self.writer |= {each.result: each for each in workload.payloads if each.result}
        classes = {each.name: each.at for each in workload.classes}
        mine = range(self.mesh.size) if rank is None else [rank]
        self.ranks = {name: [r for r in mine if self._is_at(r, at)] for name, at in classes.items()}

    def _is_at(self, rank: int, at: Mapping[str, int]) -> bool:
        coordinates = self.mesh.place(rank)
        return all(coordinates[axis] == coordinate for axis, coordinate in at.items())

    def done(self) -> GraphRun:
        nodes = _in_order(self.workload)
        latest = max((node.lag for node in nodes), default=0)
        for step in range(self.steps + latest):
            for node in nodes:
                if 0 <= step - node.lag < self.steps:
                    for batch in range(self.workload.micro_batches if node.per == "micro-batch" else 1):
                        self._do(node, step - node.lag, batch)
        read = {name for task in self.workload.tasks for name, distance in task.reads if not distance}
        read |= {each.source for each in self.workload.payloads}
        return GraphRun(self.held, tuple(name for name in self.writer if name not in read))

    def _do(self, node: Task | Payload, step: int, batch: int) -> None:
        """Carry out a node for one micro-batch of the step that its work belongs to."""
        if isinstance(node, Payload):
            source = self.workload.value[node.source]
            held = self._read(source, step, batch)
            self._write(self.workload.value[node.result], step, batch, self.carry(node, held, self.workload))
            return
        reads = [self.workload.value[name] for name, _ in node.reads]
        # A distance counts steps as they are run; both ends may do the work of earlier ones.
        lags = [self.writer[name].lag if name in self.writer else 0 for name, _ in node.reads]
        at = [step + node.lag - distance - lag for (_, distance), lag in zip(node.reads, lags, strict=True)]
        held_by = [self._read(value, when, batch) for value, when in zip(reads, at, strict=True)]
        writes = [self.workload.value[name] for name in node.writes]
        made: list[Held] = [{} for _ in writes]
        for rank in self.ranks[node.of]:
            operands = [each[rank] for each in held_by]
            outs = computed(node, reads, operands, writes, self.mesh, rank, (step, batch))
            for held, array in zip(made, outs, strict=True):
                held[rank] = array
        for value, held in zip(writes, made, strict=True):
            self._write(value, step, batch, held)

    def _write(self, value: Value, step: int, batch: int, held: Held) -> None:
        moment = value.name, step, batch if value.per == "micro-batch" else 0
        if value.per == "step" and moment in self.held:  # summed up over micro-batches
            held = {rank: self.held[moment][rank] + array for rank, array in held.items()}
        self.held[moment] = held

    def _read(self, value: Value, step: int, batch: int) -> Held:
        moment = value.name, step, batch if value.per == "micro-batch" else 0
        if moment not in self.held:
            if value.name in self.writer and step >= 0:
                raise UsageError(f"{value.name} is read in step {step} before it is written", where=self.workload.name)
            self.held[moment] = self._drawn(value, step, moment[2])
        return self.held[moment]

    def _drawn(self, value: Value, step: int, batch: int) -> Held:
        """Draw a value from its name: what is replicated alike on all ranks, what is sliced out of one whole."""
        when = (0, 0) if value.kind in KEPT or step < 0 else (step + 1, batch)
        sizes = self.mesh.sizes
        shape = tuple(size for _, size in value.dims)
        if math.prod(shape) > MOST_ELEMENTS:
            raise UsageError(f"{value.name} has {math.prod(shape):,} elements", remedy="ringwright.algebra.small first")
        own = [each.axis for each in value.layout if each.how in (PARTIAL, LOCAL)]
        held = {}
        for rank in self.ranks[value.of]:
            coordinates = self.mesh.place(rank)
            key = (self.seed, value.name.partition("#")[0], *when, *(coordinates[axis] for axis in own))
            array = drawn(key, shape)
            held[rank] = block(array, value, coordinates, sizes)
        return held


def drawn(key: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
    """Return small whole numbers that a key decides. int64 of this shape."""
    generator = np.random.default_rng([_number(each) for each in key])
    return generator.integers(-REACH, REACH + 1, shape)


def _number(each: Any) -> int:
    return zlib.crc32(each.encode()) if isinstance(each, str) else int(each)


def block(array: Array, value: Value, coordinates: Mapping[str, int], sizes: Mapping[str, int]) -> Array:
    """Return the part of a whole array that a rank at these ``coordinates`` holds of a value."""
    for at, (dim, _) in enumerate(value.dims):
        for axis in value.axes(SLICED, dim):
            array = np.split(array, sizes[axis], axis=at)[coordinates[axis]]
    return array


def _in_order(workload: Workload) -> list[Task | Payload]:
    """Return tasks and payloads such that within a step each comes after those whose values it needs."""
    nodes: list[Task | Payload] = [
        *workload.tasks,
        *(each for each in workload.payloads if each.source and each.result),
    ]
    writer = {name: node for node in nodes for name in _written(node)}
    done: dict[tuple[type, str], bool] = {}
    order: list[Task | Payload] = []
    for root in nodes:
        stack: list[tuple[Task | Payload, Iterator[str]]] = [(root, iter(_needs(root)))]
        if _key(root) in done:
            continue
        done[_key(root)] = False
        while stack:
            node, needs = stack[-1]
            name = next((each for each in needs if each in writer), None)
            if name is None:
                stack.pop()
                done[_key(node)] = True
                order.append(node)
                continue
            before = writer[name]
            if _key(before) not in done:
                done[_key(before)] = False
                stack.append((before, iter(_needs(before))))
            elif not done[_key(before)]:
                raise UsageError(f"{node.name} and {before.name} wait for each other", where=workload.name)
    return order


def _key(node: Task | Payload) -> tuple[type, str]:
    """Return what tells a task and a payload of one name apart."""
    return type(node), node.name


def _written(node: Task | Payload) -> tuple[str, ...]:
    return (node.result,) if isinstance(node, Payload) else node.writes


def _needs(node: Task | Payload) -> list[str]:
    return [node.source] if isinstance(node, Payload) else [name for name, distance in node.reads if not distance]


# ------------------------------------------------------------------------------------------------------- operations
def carried(payload: Payload, held: Held, workload: Workload) -> Held:
    """Return what the ranks hold after an operation on what they hold before it."""
    mesh, source, result = workload.mesh, workload.value[payload.source], workload.value[payload.result]
    if payload.op == "send-recv":
        peer = next(each for each in workload.classes if each.name == payload.peer)
        return {mesh.rank({**mesh.place(rank), **peer.at}): array for rank, array in held.items()}
    operation = _OPERATIONS.get(payload.op)
    if operation is None:
        raise UsageError(f"what {payload.op} does to values is not known", where=payload.name)
    made: Held = {}
    for rank in held:
        if rank not in made:
            group = mesh.group(payload.axes, rank)
            arrays = operation(payload, [held[each] for each in group], source, result)
            made |= dict(zip(group, arrays, strict=True))
    return made


def dim_of(value: Value, axes: Sequence[str]) -> int:
    """Return which dimension of a value is sliced along these axes."""
    dims = {each.dim for each in value.layout if each.how == SLICED and each.axis in axes}
    if len(dims) != 1:
        raise UsageError(f"{value.name} is sliced along {', '.join(axes)} by {len(dims)} dimensions, one is needed")
    return [name for name, _ in value.dims].index(dims.pop())


def _all_reduce(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return [sum(arrays[1:], arrays[0])] * len(arrays)


def _reduce_scatter(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return list(np.split(sum(arrays[1:], arrays[0]), len(arrays), axis=dim_of(result, payload.axes)))


def _all_gather(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return [np.concatenate(arrays, axis=dim_of(source, payload.axes))] * len(arrays)


def _all_to_all(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    old, new = dim_of(source, payload.axes), dim_of(result, payload.axes)
    blocks = [np.split(array, len(arrays), axis=new) for array in arrays]
    return [np.concatenate([row[at] for row in blocks], axis=old) for at in range(len(arrays))]


def _broadcast(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return [arrays[payload.root]] * len(arrays)


def _reduce(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    total = sum(arrays[1:], arrays[0])
    return [total if at == payload.root else np.zeros_like(total) for at in range(len(arrays))]


def _shift(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return [arrays[(at + payload.hops) % len(arrays)] for at in range(len(arrays))]


_OPERATIONS: dict[str, Callable[[Payload, list[Array], Value, Value], list[Array]]] = {
    "all-reduce": _all_reduce,
    "push-pull": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "shift": _shift,
}


# ------------------------------------------------------------------------------------------------------------ tasks
def computed(
    task: Task,
    reads: Sequence[Value],
    operands: list[Array],
    writes: Sequence[Value],
    mesh: Mesh,
    rank: int,
    when: tuple[int, int],
) -> list[Array]:
    """Return what a task writes on one rank; UsageError for operands that do not fit."""
    work = task.work or Work()
    shapes = [tuple(value.held(mesh.sizes).values()) for value in writes]
    rule = _MEANINGS.get(work.meaning)
    if rule is None:
        named = str(work.settings.get("same_as", task.name))
        key = (named, *(_digest(array) for array in operands))
        return [drawn((*key, at), shape) for at, shape in enumerate(shapes)]
    try:
        made = rule(_Site(work.settings, reads, writes, mesh, rank, when), operands)
    except (ValueError, IndexError, KeyError) as error:
        raise UsageError(f"{task.name} cannot be computed: {error}", where=f"task {task.name}") from error
    for value, array, shape in zip(writes, made, shapes, strict=True):
        if array.shape != shape:
            what = f"{task.name} makes {value.name} of shape {array.shape}, its layout says {shape}"
            raise UsageError(what, where=f"task {task.name}")
    return made


def _digest(array: Array) -> int:
    """Return a number that depends on every element of an array and on its place."""
    flat = array.ravel().astype(np.int64)
    weights = np.arange(1, len(flat) + 1, dtype=np.int64) * 2654435761
    return int((flat * weights).sum() % (1 << 61)) if len(flat) else 0


@dataclass(frozen=True)
class _Site:
    settings: Mapping[str, Any]
    reads: Sequence[Value]
    writes: Sequence[Value]
    mesh: Mesh
    rank: int
    when: tuple[int, int]

    def at(self, axis: str) -> int:
        return self.mesh.place(self.rank)[axis]


def _einsum(site: _Site, operands: list[Array]) -> list[Array]:
    names = dict.fromkeys(name for value in (*site.reads, *site.writes) for name, _ in value.dims)
    letters = {name: at for at, name in enumerate(names)}
    arguments: list[Any] = []
    for value, array in zip(site.reads, operands, strict=True):
        arguments += [array, [letters[name] for name, _ in value.dims]]
    return [np.asarray(np.einsum(*arguments, [letters[name] for name, _ in site.writes[0].dims]))]


def _pointwise(site: _Site, operands: list[Array]) -> list[Array]:
    dims = [name for name, _ in site.writes[0].dims]
    fitted = []
    for value, array in zip(site.reads, operands, strict=True):
        mine = [name for name, _ in value.dims]
        order = sorted(range(len(mine)), key=lambda at: dims.index(mine[at]))
        moved = array.transpose(order)
        index = tuple(slice(None) if name in mine else np.newaxis for name in dims)
        fitted.append(moved[index] if len(mine) < len(dims) else moved)
    return [np.asarray(_FUNCTIONS[str(site.settings.get("fn"))](site, fitted))]


def _dropout(site: _Site, operands: list[Array]) -> Array:
    """Drop half of the elements, by a counter and the micro-batch; without a counter, anew whenever it is asked."""
    counter = site.settings.get("counter")
    key = (counter, *site.when) if counter is not None else (str(site.writes[0].name), *site.when)
    axes = [each.axis for each in site.writes[0].layout]
    mask = drawn((*key, *(site.at(axis) for axis in axes)), operands[0].shape) > 0
    kept: Array = operands[0] * mask
    return kept


def _add_once(site: _Site, operands: list[Array]) -> Array:
    once = operands[1] if site.at(str(site.settings.get("axis"))) == 0 else np.zeros_like(operands[1])
    total: Array = operands[0] + once
    return total


_FUNCTIONS: dict[str, Callable[[_Site, list[Array]], Array]] = {
    "add": lambda site, x: sum(x[1:], x[0]),
    "add-once": _add_once,
    "subtract": lambda site, x: x[0] - x[1],
    "multiply": lambda site, x: x[0] * x[1],
    "scale": lambda site, x: x[0] * int(site.settings.get("by", 3)),
    "update": lambda site, x: x[0] - int(site.settings.get("by", 2)) * x[1],
    "copy": lambda site, x: x[0],
    "relu": lambda site, x: np.maximum(x[0], 0),
    "square": lambda site, x: x[0] * x[0],
    "dropout": _dropout,
}


def _rowwise(site: _Site, operands: list[Array]) -> list[Array]:
    """Subtract the largest of a row: like a softmax or a norm, it needs the whole row, and is exact on whole numbers."""
    at = [name for name, _ in site.reads[0].dims].index(str(site.settings["along"]))
    return [operands[0] - operands[0].max(axis=at, keepdims=True)]


def _sum(site: _Site, operands: list[Array]) -> list[Array]:
    return [operands[0].sum(axis=[name for name, _ in site.reads[0].dims].index(str(site.settings["along"])))]


def _bounds(site: _Site, whole: Value) -> tuple[int, int, list[tuple[int, int]]]:
    """Return the dimension that is cut, in how many blocks one rank holds it, and where in a block pieces begin and end."""
    along = str(site.settings["along"])
    slices = math.prod(site.mesh.sizes[axis] for axis in whole.axes(SLICED, along))
    total = int(site.settings.get("blocks", 1))
    blocks = max(1, total // slices)
    parts = [int(each) for each in site.settings.get("parts", ())]
    ends = list(accumulate(each // max(total, slices) for each in parts))
    return [name for name, _ in whole.dims].index(along), blocks, list(zip([0, *ends], ends, strict=False))


def _offsets(site: _Site, count: int) -> list[int]:
    """Return which block each piece is, on this rank: the same for all, or counted from the rank's own."""
    offsets = site.settings.get("offsets")
    if offsets is None:
        return list(range(count))
    return [(site.at(str(site.settings["axis"])) + int(each)) % count for each in offsets]


def _cut(site: _Site, operands: list[Array]) -> list[Array]:
    at, blocks, bounds = _bounds(site, site.reads[0])
    rows = np.split(operands[0], blocks, axis=at)
    pieces = [np.concatenate([np.take(row, range(b, e), axis=at) for row in rows], axis=at) for b, e in bounds]
    return [pieces[each] for each in _offsets(site, len(pieces))][: len(site.writes)]


def _join(site: _Site, operands: list[Array]) -> list[Array]:
    at, blocks, _ = _bounds(site, site.writes[0])
    ordered = list(operands)
    for each, array in zip(_offsets(site, len(operands)), operands, strict=True):
        ordered[each] = array
    rows = [np.split(array, blocks, axis=at) for array in ordered]
    return [np.concatenate([row[block] for block in range(blocks) for row in rows], axis=at)]


def _pad(site: _Site, operands: list[Array]) -> list[Array]:
    along = str(site.settings["along"])
    at = [name for name, _ in site.reads[0].dims].index(along)
    more = [(0, 0)] * operands[0].ndim
    more[at] = (0, site.writes[0].held(site.mesh.sizes)[along] - operands[0].shape[at])
    return [np.pad(operands[0], more)]


def _slice(site: _Site, operands: list[Array]) -> list[Array]:
    axis, dim = str(site.settings["axis"]), str(site.settings["dim"])
    at = [name for name, _ in site.reads[0].dims].index(dim)
    return [np.split(operands[0], site.mesh.sizes[axis], axis=at)[site.at(axis)]]


def _permute(site: _Site, operands: list[Array]) -> list[Array]:
    """Sort the blocks of a dimension by axes in another order; where every rank holds one block, nothing moves."""
    value, old, new = site.reads[0], str(site.settings["dim"]), str(site.settings["into"])
    if value.axes(SLICED, old):
        return [operands[0]]
    at, axes = [name for name, _ in value.dims].index(old), list(site.settings["axes"])
    before, after = _axes_of(old, axes, site.mesh), _axes_of(new, axes, site.mesh)
    array = operands[0]
    shape = array.shape
    blocks = array.reshape(*shape[:at], *(site.mesh.sizes[axis] for axis in before), -1, *shape[at + 1 :])
    order = [at + before.index(axis) for axis in after]
    rest = range(at + len(axes), blocks.ndim)
    return [blocks.transpose(*range(at), *order, *rest).reshape(shape)]


def _axes_of(dim: str, axes: list[str], mesh: Mesh) -> list[str]:
    named = dim.partition("@")[2]
    return named.split(".") if named else [axis for axis in mesh.sizes if axis in axes]


_MEANINGS: dict[str, Callable[[_Site, list[Array]], list[Array]]] = {
    "einsum": _einsum,
    "pointwise": _pointwise,
    "rowwise": _rowwise,
    "sum": _sum,
    "cut": _cut,
    "join": _join,
    "pad": _pad,
    "stack": lambda site, x: [x[0][np.newaxis]],
    "slice": _slice,
    "permute": _permute,
    "copy": lambda site, x: [x[0]],
}
