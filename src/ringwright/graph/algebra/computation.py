"""What tasks compute: the arrays that one rank writes, from those that it reads, by the meaning of its work.

A task of unknown meaning is a function that nobody knows anything of: what it writes depends on all that it reads. Where it says
along which dimensions it may be cut, that is a function of each row there, and what it writes without them sums the rows up. One
of several parts computes them one after another.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.model.values import FUSED, SLICED, Value, Work, WorkPart, parts_of
from ringwright.model.workload import Mesh, Task

Array = np.ndarray
Sizes = Mapping[str, int]
REACH = 4  # drawn numbers are between -REACH and REACH


def drawn(key: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
    """Return small whole numbers that a key decides. int64 of this shape."""
    generator = np.random.default_rng([_number(each) for each in key])
    return generator.integers(-REACH, REACH + 1, shape)


def _number(each: Any) -> int:
    return zlib.crc32(each.encode()) if isinstance(each, str) else int(each)


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
        return _of_nobody(task, work, reads, operands, writes, mesh.sizes)
    try:
        made = rule(_Site(work.settings, reads, writes, mesh, rank, when), operands)
    except (ValueError, IndexError, KeyError) as error:
        raise UsageError(f"{task.name} cannot be computed: {error}", where=f"task {task.name}") from error
    for value, array, shape in zip(writes, made, shapes, strict=True):
        if array.shape != shape:
            what = f"{task.name} makes {value.name} of shape {array.shape}, its layout says {shape}"
            raise UsageError(what, where=f"task {task.name}")
    return made


def block(array: Array, value: Value, coordinates: Mapping[str, int], sizes: Mapping[str, int]) -> Array:
    """Return the part of a whole array that a rank at these ``coordinates`` holds of a value."""
    for at, (dim, _) in enumerate(value.dims):
        for axis in value.axes(SLICED, dim):
            array = np.split(array, sizes[axis], axis=at)[coordinates[axis]]
    return array


@dataclass(frozen=True)
class _Asked:
    """Who asks for numbers, and for which: a name, a part of it, a label for each value, the one that it begins with."""

    named: str
    part: int
    labels: Sequence[Any]
    begins: Any = None


def _of_nobody(
    task: Task, work: Work, reads: Sequence[Value], operands: list[Array], writes: Sequence[Value], sizes: Sizes
) -> list[Array]:
    """Return what a function of its own makes of every row of what is read: numbers that all of the row decides.

    ``outputs`` of its settings say what it makes, where others like it make more or less; what it ``begins`` with is one of them,
    from which, and from what is read of an earlier step, the others follow.
    """
    settings = work.settings
    named, labels = str(settings.get("same_as", task.name)), list(settings.get("outputs", range(len(writes))))
    far = [bool(distance) for _, distance in task.reads] or [False] * len(reads)  # a part of a kernel does not say
    operand = list(zip(reads, operands, far, strict=True))
    with np.errstate(over="ignore"):
        if not work.parts:
            asked = _Asked(named, int(settings.get("part", 0)), labels, settings.get("begins"))
            return _numbers(asked, work, operand, writes, sizes)
        handed: list[tuple[Value, Array, bool]] = []
        made: dict[int, Array] = {}
        for number, part in enumerate(work.parts):
            out = [*(writes[at] for at in part.writes), *([handed_on(part)] if part.dims else [])]
            asked = _Asked(named, number, [*(labels[at] for at in part.writes), HANDED])
            arrays = _numbers(asked, part.work, [*handed, *(operand[at] for at in part.reads)], out, sizes)
            made |= dict(zip(part.writes, arrays, strict=False))
            handed = [(out[-1], arrays[-1], False)] if part.dims else []
        return [made[at] for at in range(len(writes))]


COLUMN = "column"  # of settings: the dimension of which a task makes some columns only, the first of them, all of them
HANDED = "handed"  # the label of what a part of a task hands to the next


def handed_on(part: WorkPart) -> Value:
    """Return what a part hands to the next one, as a value without a name."""
    return Value("", "", part.size_bytes, part.dims, part.layout, "buffer")


def _numbers(
    asked: _Asked, work: Work, operands: Sequence[tuple[Value, Array, bool]], writes: Sequence[Value], sizes: Sizes
) -> list[Array]:
    """Return numbers that depend on all operands and on who asks; slice by slice along the dimensions that may be cut."""
    rows = _rows(work, [value.held(sizes) for value in (*(value for value, _, _ in operands), *writes)])
    seed = np.asarray(zlib.crc32(f"{asked.named} {asked.part}".encode()), np.uint64)
    digests = [(_digest(value, array, list(rows)), far) for value, array, far in operands]
    key = _folded(seed, [each for each, _ in digests])
    made: list[Array] = [np.zeros(0)] * len(writes)
    for at in sorted(range(len(writes)), key=lambda at: asked.labels[at] != asked.begins):
        made[at] = _drawn_rows(key, str(asked.labels[at]), writes[at], rows, sizes, work.settings.get(COLUMN))
        if asked.begins is not None and asked.labels[at] == asked.begins:
            begun = _digest(writes[at], made[at], list(rows))
            key = _folded(seed, [begun, *(each for each, far in digests if far)])
    return made


def _drawn_rows(
    key: Array, label: str, value: Value, rows: Mapping[str, int], sizes: Sizes, range_of: Sequence[Any] | None = None
) -> Array:
    """Return the numbers of a value from a key for each row; those of rows along dimensions that it has not are added up.

    ``range_of``: a dimension of which the value has some columns only, the first of them, and how many there are in all.
    """
    held, mine = {**rows, **value.held(sizes)}, [name for name, _ in value.dims]
    others = [each for each in mine if each not in rows]
    shape = tuple(held[each] for each in (*rows, *others))
    columns = _columns({each: held[each] for each in others}, range_of)
    whole = np.broadcast_to(key[..., np.newaxis], (*shape[: len(rows)], len(columns)))
    mixed = _mixed(whole + columns * _ODD + np.uint64(zlib.crc32(label.encode())))
    numbers = (mixed % np.uint64(2 * REACH + 1)).astype(np.int64) - REACH
    summed = tuple(number for number, each in enumerate(rows) if each not in mine)
    order = [([each for each in rows if each in mine] + others).index(each) for each in mine]
    return np.asarray(numbers.reshape(shape).sum(axis=summed).transpose(order))


def _columns(held: Mapping[str, int], range_of: Sequence[Any] | None) -> Array:
    """Return the numbers of what a row has of a value, counted in the whole. uint64 of shape (columns,)."""
    dim, begin, many = range_of or ("", 0, 0)
    whole = tuple(int(many) if each == dim else size for each, size in held.items())
    numbers = np.arange(math.prod(whole), dtype=np.uint64).reshape(whole)
    if dim in held:
        at = list(held).index(dim)
        numbers = np.take(numbers, range(int(begin), int(begin) + held[dim]), axis=at)
    return numbers.ravel()


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mixed(numbers: Array) -> Array:
    """Return numbers of 64 bits of which every bit depends on every bit (Steele, Lea, Flood: splitmix64, OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def _folded(seed: Array, digests: Sequence[Array]) -> Array:
    """Return a key for each row that depends on all digests and on their order."""
    key = seed
    for at, digest in enumerate(digests):
        key = _mixed(key * _ODD + np.uint64(at)) ^ _mixed(digest)
    return key


def _digest(value: Value, array: Array, rows: list[str]) -> Array:
    """Return a number for each row that depends on every element of an array there and on its column."""
    mine = [name for name, _ in value.dims]
    own = [each for each in rows if each in mine]
    front = np.moveaxis(array, [mine.index(each) for each in own], range(len(own))).astype(np.uint64)
    flat = front.reshape(*front.shape[: len(own)], -1)
    weights = _mixed(np.arange(1, flat.shape[-1] + 1, dtype=np.uint64) * _ODD) | np.uint64(1)
    digest = (flat * weights).sum(axis=-1, dtype=np.uint64)
    return np.asarray(digest.reshape(tuple(front.shape[own.index(each)] if each in own else 1 for each in rows)))


def _rows(work: Work, held: list[dict[str, int]]) -> dict[str, int]:
    """Return along which dimensions a task works slice by slice, and how many slices: all that have them, have them alike."""
    sizes = {dim: {each[dim] for each in held if dim in each} for dim in sorted(work.settings.get("along", work.cuts))}
    return {dim: each.pop() for dim, each in sizes.items() if len(each) == 1}


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
    """Drop half of the elements, by a counter and the micro-batch; without a counter, anew whenever it is asked.

    ``keyed`` by position, which elements does not depend on how they lie; else ranks with slices draw each its own.
    """
    counter = site.settings.get("counter")
    key = (counter, *site.when) if counter is not None else (str(site.writes[0].name), *site.when)
    if site.settings.get("keyed") == "position":
        return np.asarray(operands[0] * (_by_position(site, key) > 0))
    axes = [each.axis for each in site.writes[0].layout]
    mask = drawn((*key, *(site.at(axis) for axis in axes)), operands[0].shape) > 0
    kept: Array = operands[0] * mask
    return kept


def _by_position(site: _Site, key: tuple[Any, ...]) -> Array:
    """Draw for the whole, and take what this rank has of the part that this is: the same elements on whichever rank they are."""
    out = site.writes[0]
    whole = drawn(key, tuple(int(size) for _, size in site.settings.get("whole", out.dims)))
    begins = dict(site.settings.get("begins", ()))
    part = whole[tuple(slice(begins.get(name, 0), begins.get(name, 0) + size) for name, size in out.dims)]
    return block(part, out, site.mesh.place(site.rank), site.mesh.sizes)


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
    axes = list(site.settings["axes"])
    if set(axes) & set(value.axes(SLICED, old)):
        return [operands[0]]
    at = [name for name, _ in value.dims].index(old)
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


def _fused(site: _Site, operands: list[Array]) -> list[Array]:
    """Compute part after part; what lies between is held by nobody else."""
    there, made = list(operands), dict[str, Array]()
    for part in parts_of(site.settings, site.reads, site.writes):
        task, mine = Task("a part", "", "", work=part.work), [there[at] for at in part.takes]
        there += computed(task, part.reads, mine, part.writes, site.mesh, site.rank, site.when)
        made |= dict(zip((value.name for value in part.writes), there[-len(part.writes) :], strict=True))
    return [made[value.name] for value in site.writes]


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
    FUSED: _fused,
}
