"""Where an all-gather feeds a product, or a product feeds a reduce-scatter: what can run block by block beside its operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ringwright.costs.contention.multiprocessors import multiprocessors
from ringwright.costs.contention.pieces import ALONG
from ringwright.costs.contention.products import Product, chosen
from ringwright.costs.contention.waves import turns
from ringwright.model.stages import Costs, seconds
from ringwright.model.values import SLICED, Value, Work
from ringwright.model.workload import Payload, Task, Workload, asked_on

Side = Literal["gather", "scatter"]
OPS: dict[str, Side] = {"all-gather": "gather", "reduce-scatter": "scatter"}


@dataclass(frozen=True)
class ProductSite:
    """An operation and the product beside it: the task that computes it, and which of its parts (None: all of the task).

    ``seconds`` and ``work`` are of the product, ``dim`` the dimension of the operation's blocks, ``ranks`` the group. ``others``:
    whether anybody else reads what is gathered.
    """

    payload: Payload
    task: Task
    part: int | None
    seconds: float
    work: Work
    dim: str
    ranks: tuple[int, ...]
    others: bool

    @property
    def side(self) -> Side:
        """Whether its operand is gathered or its result scattered."""
        return OPS[self.payload.op]

    def operation_s(self, costs: Costs) -> float:
        """Return seconds of the operation as a whole, alone."""
        return seconds(costs, self.payload.asked, self.payload.size_bytes, self.ranks, self.payload.role)

    def blocks_s(self, costs: Costs, op: str = "shift", *, direct: bool = False, tiles: int = 1) -> float:
        """Return seconds of its blocks one after another, round a ring or straight from and to their ranks, tile by tile."""
        many = len(self.ranks)
        size = -(-self.payload.size_bytes // (many * tiles))
        hops = range(1, many) if direct else [1] * (many - 1)
        asked = [f"{op}@{hop}" if hop > 1 else op for hop in hops]
        return tiles * sum(
            seconds(costs, asked_on(each, self.payload.network), size, self.ranks, self.payload.role) for each in asked
        )

    def tiles(self, workload: Workload, wanted: int) -> int:
        """Return into how many tiles each rank's block parts: as many as are wanted, or one where these are not equal."""
        whole = workload.value[self.payload.source if self.side == "scatter" else self.payload.result]
        return wanted if dict(whole.dims)[self.dim] % (wanted * len(self.ranks)) == 0 else 1

    def waves(self, gpu: str) -> int:
        """Return how many waves of a kernel's tiles a block of the product takes on a GPU; 0 where that is not known.

        Where the blocks are terms of a sum (along k), each wave needs all of them: nothing ends with a wave.
        """
        known = [each for each in self.work.products if each.cut in ALONG]
        if gpu == "none" or not known or any(each.cut == "k" for each in known):
            return 0
        on = multiprocessors(gpu)
        several = 0.0
        for each in known:
            kernel = chosen(Product(each.m, each.n, each.k), on)
            several += each.times * turns(kernel, each.m, each.n, on.sms)
        return max(1, int(several / len(self.ranks)))


def sites(workload: Workload) -> tuple[list[ProductSite], Counter[str]]:
    """Return the sites in the order of their operations, and why other gathers and scatters are none, with how many."""
    readers: dict[str, list[Task]] = {}
    writers: dict[str, Task] = {}
    for task in workload.tasks:
        for name, distance in task.reads:
            if not distance:
                readers.setdefault(name, []).append(task)
        writers |= dict.fromkeys(task.writes, task)
    taken = Counter(payload.source for payload in workload.payloads)
    made: list[ProductSite] = []
    none = Counter[str]()
    for payload in workload.payloads:
        if payload.op not in OPS or workload.mesh.extent(payload.axes) < 2:
            continue
        site = _site(workload, payload, readers, writers, taken)
        if isinstance(site, str):
            none[site] += 1
        else:
            made.append(site)
    return made, none


def _site(
    workload: Workload, payload: Payload, readers: dict[str, list[Task]], writers: dict[str, Task], taken: Counter[str]
) -> ProductSite | str:
    """Return the site at an operation, or why it is none."""
    side = OPS[payload.op]
    if "" in (payload.source, payload.result):
        return "nothing says which values are sent"
    if len(payload.axes) != 1:
        return "the group goes along several axes"
    ends = [workload.value[payload.source], workload.value[payload.result]]
    part_of, whole = ends if side == "gather" else ends[::-1]
    cut = part_of.along(payload.axes[0])
    if cut is None or cut.how != SLICED:
        return "the blocks lie along no dimension"
    many = workload.mesh.extent(payload.axes)
    if dict(whole.dims)[cut.dim] % many:
        return f"{cut.dim} does not part into equal blocks"
    if side == "scatter" and (taken[whole.name] > 1 or readers.get(whole.name)):
        return "others read what is scattered"
    near = readers.get(whole.name, []) if side == "gather" else [*filter(None, [writers.get(whole.name)])]
    if not near:
        return "no task of the step is beside it"
    group = workload.group(payload.of, payload.axes)
    others = side == "gather" and len(near) + taken[whole.name] > 1
    for task in near:
        part = _part(workload, task, whole, payload.axes[0], cut.dim, side)
        if part is not None:
            return ProductSite(payload, task, *_part_of(task, part), cut.dim, group, others)
    return "no product beside it can be worked on block by block"


def _part_of(task: Task, part: int) -> tuple[int | None, float, Work]:
    """Return a part of a task, its seconds and its work; below 0: all of the task."""
    if part < 0 or not task.work:
        return None if part < 0 else part, task.seconds, task.work or Work()
    return part, task.seconds * task.work.parts[part].share, task.work.parts[part].work


def _part(workload: Workload, task: Task, value: Value, axis: str, dim: str, side: Side) -> int | None:
    """Return which part of a task has a loop over blocks of what it reads or writes; -1: the task as a whole; None: no part."""
    work = task.work
    if work is None or (not task.seconds and work.meaning != "einsum"):
        return None
    reads = [workload.value[name] for name, _ in task.reads]
    writes = [workload.value[name] for name in task.writes]
    at = reads.index(value) if side == "gather" else writes.index(value)
    for number, part in enumerate(work.parts):
        if at not in (part.reads if side == "gather" else part.writes):
            continue
        handed = [part.dims] if part.dims else []
        written = [*(writes[each].dims for each in part.writes), *handed]
        alone = side == "scatter" or sum(at in each.reads for each in work.parts) == 1
        mine = [reads[each] for each in part.reads]
        return number if alone and _is_cut(part.work, mine, written, axis, dim) else None
    return -1 if _is_cut(work, reads, [each.dims for each in writes], axis, dim) else None


def _is_cut(
    work: Work, reads: Sequence[Value], written: Sequence[tuple[tuple[str, int], ...]], axis: str, dim: str
) -> bool:
    """Return whether work is a product that can be done block by block along a dimension: all that it writes has it.

    What it reads must have all blocks of it on each rank.
    """
    if any(lies is not None and lies.dim == dim for lies in (each.along(axis) for each in reads)):
        return False
    if work.meaning == "einsum":
        return True
    return bool(not work.meaning and work.products) and dim in work.cuts and all(dim in dict(dims) for dims in written)
