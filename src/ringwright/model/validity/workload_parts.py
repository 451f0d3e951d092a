"""Rules of the parts of a Workload, one by one: names, mesh, classes, tasks, resources, edges, payloads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.validity.workload_finding import Finding, doubt
from ringwright.model.workload import KINDS, OPS, PER

if TYPE_CHECKING:
    from ringwright.model.workload import Payload, Task, Workload

DISCIPLINES = ("serial", "shared", "tokens")
MOST_RANKS = 1 << 22
MOST_BYTES = 1 << 60
MOST_MICRO_BATCHES = 1 << 20
TILES = "tiles"  # a demand that counts the tiles of a kernel and takes nothing


def names(workload: Workload) -> Iterator[Finding]:
    """Yield tasks, payloads and other parts without a name, or with a name that another part has."""
    for what, listed in (
        ("task", [task.name for task in workload.tasks]),
        ("payload", [payload.name for payload in workload.payloads]),
        ("class", [each.name for each in workload.classes]),
        ("resource", [each.name for each in workload.resources]),
        ("axis", [name for name, _ in workload.mesh.axes]),
    ):
        for name, count in Counter(listed).items():
            if not name:
                yield Finding("name", f"a {what} without a name", what, f"give every {what} a name")
            elif count > 1:
                yield Finding("name", f"{count} {what}s are called '{name}'", f"{what} {name}", "a name for each")


def mesh(workload: Workload) -> Iterator[Finding]:
    """Yield axes of the mesh without a valid name or size."""
    for name, size in workload.mesh.axes:
        if not _is_count(size) or size < 1:
            yield Finding("mesh", f"axis '{name}' has {size} ranks", f"axis {name}", "at least 1")
    if not workload.mesh.axes:
        yield Finding("mesh", "the mesh has no axis", "mesh", 'Mesh((("dp", 8),))')
    if not 1 <= workload.micro_batches <= MOST_MICRO_BATCHES:
        what = f"{workload.micro_batches} micro-batches a step"
        yield Finding("mesh", what, "micro_batches", f"1 to {MOST_MICRO_BATCHES:,}")
    if workload.mesh.axes and workload.mesh.size > MOST_RANKS:
        yield Finding("mesh", f"{workload.mesh.size:,} ranks", "mesh", f"at most {MOST_RANKS:,}")


def class_of_ranks(workload: Workload) -> tuple[np.ndarray, tuple[int, int, int] | None]:
    """Return the class number of each rank (-1: none) and, where a rank is of two classes, (rank, one, other).

    int64 of shape (ranks,).
    """
    grid = workload.mesh
    ranks, class_of, twice = np.arange(grid.size), np.full(grid.size, -1), None
    for number, each in enumerate(workload.classes):
        inside = np.ones(grid.size, bool)
        for axis, coordinate in each.at.items():
            inside &= ranks // grid.strides[axis] % grid.sizes[axis] == coordinate
        both = np.flatnonzero(inside & (class_of >= 0))
        if len(both) and twice is None:
            twice = int(both[0]), int(class_of[both[0]]), number
        class_of[inside] = number
    return class_of, twice


def _is_placed(workload: Workload) -> bool:
    """Say whether mesh and classes are such that ranks can be put into classes."""
    axes, sizes = workload.mesh.axes, workload.mesh.sizes
    if not axes or len(sizes) != len(axes) or any(not _is_count(size) or size < 1 for _, size in axes):
        return False
    if workload.mesh.size > MOST_RANKS:
        return False
    return all(axis in sizes for each in workload.classes for axis in each.at)


def classes(workload: Workload) -> Iterator[Finding]:
    """Yield classes at coordinates that the mesh does not have, and ranks of no class or of two."""
    sizes = workload.mesh.sizes
    for each in workload.classes:
        for axis, coordinate in each.at.items():
            if axis not in sizes:
                remedy = f"one of: {', '.join(sizes)}"
                yield Finding("class", f"'{each.name}' is on an axis '{axis}'", f"class {each.name}", remedy)
            elif not _is_count(coordinate) or not 0 <= coordinate < sizes[axis]:
                what = f"'{each.name}' is at {axis} {coordinate} of {sizes[axis]}"
                yield Finding("class", what, f"class {each.name}", f"0 to {sizes[axis] - 1}")
    if not _is_placed(workload):
        return
    class_of, twice = class_of_ranks(workload)
    if twice is not None:
        rank, one, other = twice
        what = f"rank {rank} is of class {workload.classes[one].name} and of {workload.classes[other].name}"
        yield Finding("class", what, f"rank {rank}", "classes that do not overlap")
    without = np.flatnonzero(class_of < 0)
    if len(without):
        yield Finding("class", f"rank {int(without[0])} is of no class", f"rank {int(without[0])}", "a class for it")


def tasks(workload: Workload) -> Iterator[Finding]:
    """Yield tasks with impossible values: a negative time, an unknown kind or class."""
    known = {each.name for each in workload.classes}
    for task in workload.tasks:
        where = f"task {task.name}, class {task.of}"
        if task.of not in known:
            yield Finding("task", f"{task.name} is of class '{task.of}'", where, f"one of: {_some(known)}")
        if task.kind not in KINDS:
            yield Finding("task", f"{task.name} is of kind '{task.kind}'", where, f"one of: {', '.join(KINDS)}")
        if task.per not in PER:
            yield Finding("task", f"{task.name} runs once a '{task.per}'", where, f"one of: {', '.join(PER)}")
        if not math.isfinite(task.seconds) or task.seconds < 0:
            yield Finding("task", f"{task.name} takes {task.seconds} s", where, "a time of 0 s or more")
    if not workload.tasks:
        yield Finding("task", "the workload has no task", workload.name, "at least one")


def resources(workload: Workload) -> Iterator[Finding]:
    """Yield resources of no known kind and demands for what does not exist."""
    held = {each.name: each for each in workload.resources}
    for each in workload.resources:
        where = f"resource {each.name}"
        if each.discipline not in DISCIPLINES:
            remedy = f"one of: {', '.join(DISCIPLINES)}"
            yield Finding("resource", f"'{each.name}' is '{each.discipline}'", where, remedy)
        if not each.capacity > 0:
            yield Finding("resource", f"'{each.name}' has a capacity of {each.capacity}", where, "above 0")
    for task in workload.tasks:
        where = f"task {task.name}, class {task.of}"
        for name, amount in task.demands:
            if not math.isfinite(amount):
                yield Finding("resource", f"{task.name} demands {amount} of '{name}'", where, "a finite amount")
            elif name != TILES and name not in held:
                what = f"{task.name} demands {amount:g} of '{name}', which is no resource"
                yield Finding("resource", what, where, f"one of: {_some(held)}")
            elif name != TILES and amount > held[name].capacity:
                what = f"{task.name} demands {amount:g} of '{name}', of which there are {held[name].capacity:g}"
                yield Finding("tokens", what, where, "a larger capacity, or a smaller demand")


def edges(workload: Workload) -> Iterator[Finding]:
    """Yield edges whose ends do not exist, or that join tasks of two rank classes."""
    known = workload.task
    for edge in workload.edges:
        where = f"edge {edge.src} -> {edge.dst}"
        missing = [name for name in (edge.src, edge.dst) if name not in known]
        for name in missing[:1]:
            yield Finding("edge", f"an edge names a task '{name}' that does not exist", where, "add it or leave it out")
        if not missing and known[edge.src].of != known[edge.dst].of:
            what = f"{edge.src} is of class {known[edge.src].of}, {edge.dst} of {known[edge.dst].of}"
            yield Finding("edge", what, where, "ranks wait for each other through payloads only")
        if edge.distance < 0:
            yield Finding("edge", f"an edge goes {-edge.distance} steps back", where, "a distance of 0 or more")


def payloads(workload: Workload) -> Iterator[Finding]:
    """Yield payloads that cannot be exchanged."""
    taking = _Taking(workload)
    for each in workload.payloads:
        where = f"payload {each.name}, class {each.of}"
        yield from _payload_fields(workload, each, where)
        if not 0 < each.size_bytes <= MOST_BYTES:
            remedy = "leave out what is not sent; a payload has at least 1 B"
            remedy = remedy if each.size_bytes <= 0 else f"at most {MOST_BYTES:,} B"
            yield Finding("size", f"{each.name} has {each.size_bytes} B", where, remedy)
        if not 0 < each.disturbed < math.inf:
            what = f"{each.name} takes {each.disturbed:g} times as long as its like"
            yield Finding("payload", what, where, "disturbed is above 0; 1 where nothing tells")
        if not each.producers:
            remedy = "name the task that makes it; a CTRL task for what is there from the start"
            yield Finding("producer", f"{each.name} has no producer", where, remedy)
        if not each.consumers:
            yield doubt("consumer", f"nobody waits for {each.name}", where, "name the task that uses it")
        yield from _ends(workload, each, where, taking)


def _payload_fields(workload: Workload, each: Payload, where: str) -> Iterator[Finding]:
    known, sizes = {one.name for one in workload.classes}, workload.mesh.sizes
    if each.of not in known:
        yield Finding("payload", f"{each.name} is of class '{each.of}'", where, f"one of: {_some(known)}")
    if each.op not in OPS:
        yield Finding("payload", f"{each.name} is a '{each.op}'", where, f"one of: {', '.join(OPS)}")
    if each.per not in PER:
        yield Finding("payload", f"{each.name} is sent once a '{each.per}'", where, f"one of: {', '.join(PER)}")
    strange = [axis for axis in each.axes if axis not in sizes]
    if strange:
        yield Finding("payload", f"{each.name} goes along '{strange[0]}'", where, f"one of: {', '.join(sizes)}")
    elif each.op != "send-recv" and not each.axes:
        yield Finding("payload", f"{each.name} goes along no axis", where, f"one of: {', '.join(sizes)}")
    elif not strange and not 0 <= each.root < max(workload.mesh.extent(each.axes), 1):
        yield Finding("payload", f"{each.name} has root {each.root}", where, "a rank of its group")
    if each.op == "send-recv" and each.peer not in known:
        what = f"{each.name} goes to '{each.peer}', which is no class of ranks"
        yield Finding("payload", what, where, f"peer is one of: {_some(known)}")
    for name in each.joint:
        if name not in known:
            yield Finding("payload", f"{each.name} is joined by class '{name}'", where, f"one of: {_some(known)}")


class _Taking:
    """Which classes take part in a payload: those of the ranks in the groups of its class."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.held: dict[tuple[str, tuple[str, ...]], set[str]] = {}
        self.of_rank = class_of_ranks(workload)[0] if _is_placed(workload) else None
        self.number = {each.name: at for at, each in enumerate(workload.classes)}

    def classes(self, each: Payload) -> set[str]:
        """Return them; all classes where the mesh says nothing."""
        if each.joint:
            return {each.of, *each.joint}
        key = each.of, each.axes
        if key not in self.held:
            self.held[key] = self._groups(each)
        taken: set[str] = self.held[key]
        return taken

    def _groups(self, each: Payload) -> set[str]:
        everyone = {one.name for one in self.workload.classes}
        if (
            self.of_rank is None
            or each.of not in self.number
            or any(a not in self.workload.mesh.sizes for a in each.axes)
        ):
            return everyone
        grid = self.of_rank.reshape([size for _, size in self.workload.mesh.axes])
        along = tuple(at for at, (name, _) in enumerate(self.workload.mesh.axes) if name in each.axes)
        mine = (grid == self.number[each.of]).any(axis=along, keepdims=True)
        inside = np.unique(grid[np.broadcast_to(mine, grid.shape)])
        return {self.workload.classes[number].name for number in inside.tolist() if number >= 0}


def _ends(workload: Workload, each: Payload, where: str, taking: _Taking) -> Iterator[Finding]:
    """Yield producers and consumers that do not exist or are on ranks that do not take part."""
    makes = {each.of} if each.op == "send-recv" else taking.classes(each)
    uses = {each.of, each.peer} if each.op == "send-recv" else makes
    yield from _tasks_of(workload, "producer", each.producers, makes, (each.name, where))
    yield from _tasks_of(workload, "consumer", (name for name, _ in each.consumers), uses, (each.name, where))
    late = [name for name, distance in each.consumers if distance < 0]
    if late:
        what = f"{late[0]} waits for {each.name} of a later step"
        yield Finding("consumer", what, where, "a distance of 0 or more")


def _tasks_of(
    workload: Workload, rule: str, listed: Iterable[str], classes_: set[str], of: tuple[str, str]
) -> Iterator[Finding]:
    payload, where = of
    for name in listed:
        task: Task | None = workload.task.get(name)
        if task is None:
            yield Finding(rule, f"{payload} names a task '{name}' that does not exist", where, "add it or leave it out")
        elif task.of not in classes_:
            what = f"{rule} {name} of {payload} is of class {task.of}, which does not take part"
            yield Finding(rule, what, where, f"a task of: {_some(classes_)}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _some(known: Iterable[str]) -> str:
    """List the first names: as declared, or, where they come without an order, by the alphabet."""
    listed = sorted(known) if isinstance(known, set) else list(known)
    return ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "") if listed else "none is declared"
