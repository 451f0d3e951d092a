"""Which ranks do the same at the same time: the coarsest division of the mesh that the workload and its faults allow.

Two ranks are in one class when the workload gives them one class, they have one slowdown, they lie alike on the machine, and
their groups along every axis have equal members by class. The division is refined until that holds: simulating one rank of each
class is simulating all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.model.workload import Workload


@dataclass(frozen=True)
class RankClasses:
    """Class of each rank, and per class its name, a representative, how many ranks it has, its slowdown (1: healthy)."""

    class_of: np.ndarray
    of: tuple[str, ...]
    ranks: tuple[int, ...]
    counts: tuple[int, ...]
    slowdowns: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.of)


def rank_classes(
    workload: Workload,
    slowdowns: Mapping[int, float] | None = None,
    *,
    marked: Iterable[int] = (),
    folded: bool = True,
    places: np.ndarray | None = None,
) -> RankClasses:
    """Return the rank classes; ``slowdowns`` (rank -> factor on its compute time) are faults, and each splits its class.

    ``marked`` ranks are alike to no other, because their links are; ``places`` are numbers of all ranks, equal where they lie
    alike on the machine (``PlacedCosts``). ``folded`` False makes every rank a class of its own. Raises
    UsageError for a rank of no class, or of two.
    """
    mesh, size = workload.mesh, workload.mesh.size
    slowdown = np.ones(size)
    for rank, factor in (slowdowns or {}).items():
        if not 0 <= rank < size:
            raise UsageError(f"rank {rank} is not in the job", remedy=f"0 to {size - 1}")
        slowdown[rank] = factor
    classes, alone = _classes(workload), np.zeros(size, np.int64)
    for at, rank in enumerate(dict.fromkeys(marked)):
        alone[rank] = at + 1
    told_apart = [classes, _index(slowdown), alone, *([] if places is None else [places])]
    alike = np.unique(np.stack(told_apart), axis=1, return_inverse=True)[1].ravel()
    label = _in_order(alike if folded else np.arange(size))
    while folded:
        finer = _in_order(_refined(label, mesh.sizes))
        if finer.max() == label.max():
            break
        label = finer
    first = np.unique(label, return_index=True)[1]
    counts = np.bincount(label)
    names = tuple(workload.classes[classes[rank]].name for rank in first)
    return RankClasses(label, names, tuple(first.tolist()), tuple(counts.tolist()), tuple(slowdown[first].tolist()))


def _classes(workload: Workload) -> np.ndarray:
    mesh = workload.mesh
    ranks, class_of = np.arange(mesh.size), np.full(mesh.size, -1)
    for at, each in enumerate(workload.classes):
        inside = np.ones(mesh.size, bool)
        for axis, coordinate in each.at.items():
            if axis not in mesh.sizes:
                raise UsageError(f"class {each.name} is placed on an axis '{axis}' that the mesh has not")
            inside &= ranks // mesh.strides[axis] % mesh.sizes[axis] == coordinate
        if (class_of[inside] >= 0).any():
            rank = int(np.flatnonzero(inside & (class_of >= 0))[0])
            raise UsageError(f"rank {rank} is of class {workload.classes[class_of[rank]].name} and of {each.name}")
        class_of[inside] = at
    if (class_of < 0).any():
        raise UsageError(f"rank {int(np.flatnonzero(class_of < 0)[0])} is of no class", remedy="a class for every rank")
    return class_of


def _refined(label: np.ndarray, sizes: dict[str, int]) -> np.ndarray:
    """Return labels that also tell apart ranks whose groups along some axis, or some axes together, hold other rank classes."""
    grid = label.reshape(tuple(sizes.values()))
    columns = [label]
    for axis in range(grid.ndim):
        lines = np.sort(grid, axis=axis)
        flat = np.moveaxis(lines, axis, -1).reshape(-1, grid.shape[axis])
        kinds = np.unique(flat, axis=0, return_inverse=True)[1].ravel()
        shape = tuple(np.delete(grid.shape, axis))
        columns.append(np.broadcast_to(np.expand_dims(kinds.reshape(shape), axis), grid.shape).ravel())
    return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel()


def _index(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1].ravel()


def _in_order(label: np.ndarray) -> np.ndarray:
    """Number the labels by the first rank that has them."""
    values, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(values), np.int64)
    rank[np.argsort(first)] = np.arange(len(values))
    return rank[inverse.ravel()]
