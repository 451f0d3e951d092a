"""What tasks compute: the arrays that one rank writes, from those that it reads, by the meaning of its work.

A task of unknown meaning is a function that nobody knows anything of: what it writes depends on all that it reads.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from ringwright.errors import UsageError
from ringwright.values import FUSED, SLICED, Value, Work, parts_of
from ringwright.workload import Mesh, Task

Array = np.ndarray
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
