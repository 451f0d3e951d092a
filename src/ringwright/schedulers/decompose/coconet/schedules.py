"""CoCoNet's named schedules of a sum and the computations behind it, each by rules from the one before it.

``AR-C``, ``RS-C-AG``, ``fuse(RS-C-AG)`` behind gradients; the same behind a product, which overlaps in the last one; and over a
message to the next group of ranks, in which ranks send slices.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringwright.graph.algebra import rewritten
from ringwright.graph.algebra.reorder import elementwise
from ringwright.ground.errors import WorkloadError
from ringwright.model.values import KEPT, LOCAL, PARTIAL
from ringwright.model.workload import Payload, Task, Workload

MEANT = ("pointwise", "rowwise", "sum")
Todo = Sequence[tuple[str, str, Mapping[str, Any]]]


@dataclass(frozen=True)
class SumSite:
    """A sum, the computations behind it in order, states among what they write, the product before it, the message behind it."""

    total: Payload
    computations: tuple[str, ...]
    states: tuple[str, ...]
    product: str = ""
    message: str = ""


class Readers:
    """Who writes and who reads each value in the step in which it is written, and what is sent of it."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.writer = {name: task for task in workload.tasks for name in task.writes}
        self.readers: dict[str, list[Task]] = {}
        self.of_any_step: dict[str, list[Task]] = {}
        for task in workload.tasks:
            for name, late in task.reads:
                self.of_any_step.setdefault(name, []).append(task)
                if not late:
                    self.readers.setdefault(name, []).append(task)
        self.place = {task.name: at for at, task in enumerate(workload.tasks)}
        self.sent: dict[str, list[Payload]] = {}
        for each in workload.payloads:
            self.sent.setdefault(each.source, []).append(each)

    def is_known(self, task: Task, of: str) -> bool:
        """Return whether it is known what a task computes of a value: by its meaning, or element by element."""
        value, meaning = self.workload.value, task.work.meaning if task.work else ""
        alike = all(value[name].dims == value[of].dims for name in task.writes)
        return meaning in MEANT or (alike and elementwise(task, value))


def sum_site(workload: Workload, at: str, readers: Readers | None = None) -> SumSite:
    """Return what stands around an all-reduce; WorkloadError where nothing is known to be computed of it."""
    known = readers or Readers(workload)
    total = workload.payload.get(at)
    if total is None or total.op != "all-reduce":
        raise WorkloadError(f"coconet: '{at}' is no all-reduce", where=workload.name, remedy="one of its sums")
    sends = [each for each in known.sent.get(total.result, ()) if total.result and each.op == "send-recv"]
    behind = _behind(known, sends[0].result if sends else total.result) if total.result else ()
    if not behind:
        raise WorkloadError(
            f"coconet: nobody knows what is computed of {total.result or at}",
            where=f"{workload.name}, {at}",
            remedy="--model NAME, whose updates say what they change; or a program of ringwright.graph.algebra.stages",
        )
    written = dict.fromkeys(name for task in behind for name in task.writes)
    states = tuple(name for name in written if workload.value[name].kind in KEPT)
    maker = known.writer.get(total.source)
    product = maker.name if maker and maker.work and maker.work.meaning == "einsum" else ""
    names = tuple(task.name for task in behind)
    return SumSite(total, names, states, product, sends[0].name if sends else "")


def _behind(known: Readers, value: str) -> tuple[Task, ...]:
    """Return the computations that are known and need a value, and those that only they read, in order."""
    inside: dict[str, Task] = {}
    todo = [value]
    while todo:
        of = todo.pop()
        for task in known.readers.get(of, ()):
            if task.name not in inside and known.is_known(task, of):
                inside[task.name] = task
                todo += task.writes
    left = list(inside.values())
    while left:
        for name, late in left.pop().reads:
            before = None if late else known.writer.get(name)
            if before is None or before.name in inside or not _feeds(known, before, inside):
                continue
            inside[before.name] = before
            left.append(before)
    return tuple(sorted(inside.values(), key=lambda task: known.place[task.name]))


def _feeds(known: Readers, task: Task, names: Container[str]) -> bool:
    """Return whether a task is point-wise, of values that all ranks have, and read by these tasks alone."""
    if not task.work or task.work.meaning != "pointwise":
        return False
    whole = not any(e.how in (LOCAL, PARTIAL) for name in task.writes for e in known.workload.value[name].layout)
    return whole and all(each.name in names for value in task.writes for each in known.readers.get(value, ()))


def updates_apart(workload: Workload) -> Todo:
    """Return what makes a task for each layer of the updates behind gradients: sums come layer by layer."""
    known = Readers(workload)
    wanted: dict[str, None] = {}
    for payload in workload.payloads:
        if payload.op == "all-reduce" and payload.per == "step" and payload.result:
            wanted |= dict.fromkeys(task.name for task in known.readers.get(payload.result, ()))
    parted = {name: workload.task[name].work for name in wanted}
    return [("open", name, {}) for name, work in parted.items() if work and work.parts and not work.parts[0].dims]


# -------------------------------------------------------------------------------------------------- behind gradients
def optimizer_schedules(workload: Workload, at: str, *, saved_us: float = 0.0) -> Iterator[tuple[str, Workload]]:
    """Yield the candidates for a sum and an update behind it: exactly AR-C, RS-C-AG and fuse(RS-C-AG).

    First all point-wise code that can be is one kernel; then the sum is split, the computations work on slices, states are kept
    in slices; then they run in the kernel of the operation, each ``saved_us`` shorter.
    """
    around = sum_site(workload, at)
    yield "AR-C", kernels(workload, around.computations)
    split = rewritten(workload, split_sum(around))
    sliced = rewritten(split, sliced_states(split, around.states))
    fused = kernels(sliced, around.computations)
    yield "RS-C-AG", fused
    yield "fuse(RS-C-AG)", in_one_kernel(fused, [f"{at}.scatter"], saved_us)


def split_sum(at: SumSite) -> Todo:
    """Return what splits a sum, and moves its gather behind the computations."""
    total = at.total.name
    return [("split-all-reduce", total, {}), ("reorder", f"{total}.gather", {"over": list(at.computations)})]


def sliced_states(workload: Workload, names: Sequence[str]) -> Todo:
    """Return what keeps states in slices, where nothing reads more of them."""
    known = Readers(workload)
    return [("as-slice", name, {}) for name in names if _all_sliced(known, name)]


def _all_sliced(known: Readers, name: str) -> bool:
    """Return whether a state is only read in slices, which are then all that a rank needs of it."""
    readers = known.of_any_step.get(name, ())
    sliced = all(task.work is not None and task.work.meaning == "slice" for task in readers)
    return sliced and known.workload.value[name].kind == "optimizer"


def kernels(workload: Workload, names: Sequence[str]) -> Workload:
    """Return the workload in which point-wise tasks between operations and sums are one kernel each."""
    level: dict[int, list[Task]] = {}
    inside = set(names)
    mine = [task for task in workload.tasks if task.name in inside and task.work and task.work.meaning == "pointwise"]
    if len(mine) < 2:
        return workload
    depths = _depths(workload)
    for task in mine:
        level.setdefault(depths[task.name], []).append(task)
    groups = [run for tasks in level.values() for run in _connected(tasks) if len(run) > 1]
    return rewritten(workload, [("fuse-tasks", run[0], {"others": run[1:]}) for run in groups]) if groups else workload


def _depths(workload: Workload) -> dict[str, int]:
    """Return behind how many operations, sums and products a task is; of those that wait for none, as its readers are."""
    brought = {each.result: each.source for each in workload.payloads}
    readers: dict[str, list[str]] = {}
    for task in workload.tasks:
        for name, late in task.reads:
            if not late:
                readers.setdefault(name, []).append(task.name)
    depth_of: dict[str, int] = {}  # of a value
    depths: dict[str, int] = {}

    def value_depth(name: str, late: int) -> int:
        if late:
            return 0
        return 1 + value_depth(brought[name], 0) if name in brought else depth_of.get(name, 0)

    for task in workload.tasks:
        depths[task.name] = max((value_depth(*each) for each in task.reads), default=0)
        more = bool(task.work and task.work.meaning in ("sum", "einsum"))
        depth_of |= dict.fromkeys(task.writes, depths[task.name] + more)
    for task in reversed(workload.tasks):
        mine = [depths[name] for value in task.writes for name in readers.get(value, ())]
        if mine and not depths[task.name] and task.work and task.work.meaning == "pointwise":
            depths[task.name] = min(mine)
    return depths


def _connected(tasks: Sequence[Task]) -> list[list[str]]:
    """Return tasks in runs that have values in common, each in order."""
    runs: list[tuple[set[str], list[str]]] = []
    for task in tasks:
        mine = {*(name for name, late in task.reads if not late), *task.writes}
        near = [run for run in runs if run[0] & mine]
        joined = (mine.union(*(run[0] for run in near)), [name for run in near for name in run[1]] + [task.name])
        runs = [run for run in runs if run not in near] + [joined]
    order = {task.name: at for at, task in enumerate(tasks)}
    return [sorted(names, key=order.__getitem__) for _, names in runs]


def in_one_kernel(workload: Workload, scatters: Collection[str], saved_us: float = 0.0) -> Workload:
    """Return the workload with the computations beside scatters, and the gathers behind them, in their kernels."""
    known, todo = Readers(workload), list[tuple[str, str, Mapping[str, Any]]]()
    brought = {workload.payload[name].result: name for name in scatters if name in workload.payload}
    for task in workload.tasks:
        meaning = task.work.meaning if task.work else ""
        if meaning not in ("pointwise", "fused") and not elementwise(task, workload.value):
            continue
        sent = [each for name in task.writes for each in known.sent.get(name, ())]
        gathers = [each.name for each in sent if each.op == "all-gather"]
        before = [brought[name] for name, late in task.reads if name in brought and not late]
        alone = [each for each in before if len(known.of_any_step[workload.payload[each].result]) == 1]
        if meaning or before:
            within = [*alone, *gathers]
            todo += [("fuse-collective", task.name, {"within": within, "saved_us": saved_us})] if within else []
    return rewritten(workload, todo) if todo else workload


# ---------------------------------------------------------------------------------------------------- behind a product
def product_schedules(workload: Workload, at: str) -> Iterator[tuple[str, Workload]]:
    """Yield MM-AR-C, MM-RS-C-AG and ol(MM, fuse(RS-C-AG)): the product makes a block, the ring carries the one before."""
    around = sum_site(workload, at)
    if not around.product:
        raise WorkloadError(
            f"coconet: no product makes {around.total.source}", where=workload.name, remedy="a sum behind a matmul"
        )
    yield "MM-AR-C", kernels(workload, around.computations)
    split = rewritten(workload, split_sum(around))
    yield "MM-RS-C-AG", kernels(split, around.computations)
    looped = rewritten(split, [("loop-scatter", around.product, {})])
    yield "ol(MM, fuse(RS-C-AG))", in_one_kernel(kernels(looped, around.computations), [f"{at}.scatter"])


# ------------------------------------------------------------------------------------------------- over a message
def message_schedules(workload: Workload, at: str, *, dim: str, parts: int = 2) -> Iterator[tuple[str, Workload]]:
    """Yield AR-P2P-C, RS-P2P-C-AG (ranks send slices) and ol(RS, fuse(P2P-C-AG)), cut along ``dim`` into ``parts``."""
    around = sum_site(workload, at)
    if not around.message:
        raise WorkloadError(
            f"coconet: nobody sends {around.total.result}", where=workload.name, remedy="a sum before a send"
        )
    yield "AR-P2P-C", kernels(workload, around.computations)
    message = around.message
    split = rewritten(
        workload,
        [
            ("split-all-reduce", at, {}),
            ("send-before-gather", message, {}),
            ("reorder", f"{message}.gather", {"over": list(around.computations)}),
        ],
    )
    yield "RS-P2P-C-AG", kernels(split, around.computations)
    receiver = workload.payload[message].peer
    gathers = [each.name for each in split.payloads if each.op == "all-gather" and each.of == receiver]
    through = [message, *around.computations, *gathers]
    cut = rewritten(split, [("cut", f"{at}.scatter", {"dim": dim, "parts": parts, "through": through})])
    own = {f"{name}.{part}" for name in around.computations for part in range(parts)}
    yield "ol(RS, fuse(P2P-C-AG))", in_one_kernel(kernels(cut, sorted(own)), ())
