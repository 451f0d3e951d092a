"""Are two graphs equal? Both are carried out on the same inputs; every output must be the same on every rank, to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ringwright.graph.algebra.computation import COLUMN, block, handed_on
from ringwright.graph.algebra.meaning import GraphRun, carry_out
from ringwright.ground.errors import UsageError
from ringwright.model.values import KEPT, SLICED
from ringwright.model.workload import Task, Workload


@dataclass(frozen=True)
class Proof:
    """Whether two graphs made the same outputs: which differ, which were compared, in how many draws of the inputs."""

    differing: tuple[str, ...]
    compared: tuple[str, ...]
    draws: int

    @property
    def equal(self) -> bool:
        """Whether every output that was compared is the same, and there was one."""
        return not self.differing and bool(self.compared)


def outputs(workload: Workload) -> tuple[str, ...]:
    """Return the values that a step leaves behind: written, and read by nobody in the step, or kept from step to step."""
    written = dict.fromkeys(name for task in workload.tasks for name in task.writes)
    written |= dict.fromkeys(each.result for each in workload.payloads if each.result)
    read = {name for task in workload.tasks for name, distance in task.reads if not distance}
    read |= {each.source for each in workload.payloads}
    later = {name for task in workload.tasks for name, distance in task.reads if distance}
    return tuple(n for n in written if n not in read or n in later or workload.value[n].kind in KEPT)


def prove(before: Workload, after: Workload, *, draws: int = 3, seed: int = 0) -> Proof:
    """Carry both graphs out on ``draws`` draws of the inputs and compare the outputs of ``before``.

    One step is carried out, or two where a value of one step is read in the next. An output that ``after`` does not have
    differs; of one that it keeps in slices each rank's slice is compared. UsageError for graphs that cannot be carried out.
    """
    names, steps = outputs(before), 1 + any(distance for task in before.tasks for _, distance in task.reads)
    differing: dict[str, None] = {}
    for draw in range(draws):
        one, other = (carry_out(each, steps=steps, seed=seed + draw) for each in (before, after))
        differing |= dict.fromkeys(name for name in names if not _same(one, other, name, _cut(before, after, name)))
    return Proof(tuple(differing), names, draws)


Cut = Callable[[np.ndarray, int], np.ndarray]


def _cut(before: Workload, after: Workload, name: str) -> Cut:
    """Return what a rank still holds of a value that it held more of before: where only ``after`` cuts it into slices.

    Cuts along an axis that is two in ``after`` are those of before under other names.
    """
    old, new, sizes = before.value[name], after.value.get(name), before.mesh.sizes
    cuts = tuple(each for each in new.layout if each not in old.layout and each.axis in sizes) if new else ()
    if not cuts or any(each.how != SLICED or old.along(each.axis) for each in cuts):
        return lambda array, _: array
    sliced = replace(old, layout=cuts)
    return lambda array, rank: block(array, sliced, before.mesh.place(rank), before.mesh.sizes)


def _same(one: GraphRun, other: GraphRun, name: str, cut: Cut) -> bool:
    mine, theirs = one.of(name), other.of(name)
    if set(mine) - set(theirs):
        return False
    return all(
        held.keys() == theirs[moment].keys()
        and all(np.array_equal(cut(array, rank), theirs[moment][rank]) for rank, array in held.items())
        for moment, held in mine.items()
    )


def small(*workloads: Workload, at_most: int = 3) -> list[Workload]:
    """Return graphs with dimensions so small that they can be carried out, a dimension of one name in one size in all of them.

    Each slice of a dimension has at most ``at_most`` elements. UsageError for a graph that names sizes (it cuts a dimension into
    parts, or takes padding off): those sizes are of the whole.
    """
    for workload in workloads:
        named = ("parts", COLUMN)
        sized = next(
            (t.name for t in workload.tasks if t.work and any(each in t.work.settings for each in named)), None
        )
        if sized is not None:
            raise UsageError(
                f"{sized} names sizes of parts, which are those of the whole",
                where=workload.name,
                remedy="prove the rule on a small model, as it is",
            )
    parts: dict[str, int] = {}
    for workload in workloads:
        sizes = workload.mesh.sizes
        handed = [handed_on(part) for task in workload.tasks if task.work for part in task.work.parts]
        for value in (*workload.values, *handed):
            for dim, _ in value.dims:
                slices = math.prod(sizes[axis] for axis in value.axes(SLICED, dim))
                parts[dim] = math.lcm(parts.get(dim, 1), slices)

    def shrunk(dim: str, size: int) -> tuple[str, int]:
        return dim, parts[dim] * min(at_most, max(1, size // parts[dim]))

    def dims(whole: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return tuple(shrunk(*dim) for dim in whole)

    def parted(task: Task) -> Task:
        if not (task.work and task.work.parts):
            return task
        made = tuple(replace(part, dims=dims(part.dims)) for part in task.work.parts)
        return replace(task, work=replace(task.work, parts=made))

    return [
        replace(
            each,
            values=tuple(replace(value, dims=dims(value.dims)) for value in each.values),
            tasks=tuple(parted(task) for task in each.tasks),
        )
        for each in workloads
    ]
