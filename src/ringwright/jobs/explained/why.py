"""Why communication was not hidden: each exposed operation of the last step gets one cause, and what would help.

Causes, in the order in which they are tried. *outage*: a link of it was down or slower meanwhile. *contention*: it shared a link
and took longer than alone. *dependency*: its consumer follows within the same pass. *order*: a less urgent operation went first
while it was ready; the piece that was being sent just then is not counted, for no order takes it back. *window*: it was ready and
nothing was being sent. *latency*: it stood in line, and half of it would take nearly as long. *bucket*: it waited for other
gradients of its bucket, while nothing was being sent. *barrier*: it ran after backward, and the next forward pass could have
begun without it (at most as much as that pass takes). *bandwidth*: nothing was left to hide it behind.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np

from ringwright.analysis.intervals import covered
from ringwright.engines.job.groups import OperationGroups
from ringwright.engines.job.run import COMPUTE, JobRun
from ringwright.engines.job.step import Instances
from ringwright.ground.units import PS
from ringwright.jobs.explained.account import joined, spans
from ringwright.model.rewrites import Operation
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Workload
from ringwright.schedulers.order import first_consumers

if TYPE_CHECKING:
    from ringwright.analysis.intervals import Spans
    from ringwright.jobs.explained.named_remedies import NamedRemedy

LOOKED_AT = 16  # pieces of an operation, from the most exposed to the least; each stands for its neighbours
SHARE = 0.2  # of the exposed time that a cause must explain
LEAST_PS = 1e3
FIXED = 0.5  # share of an operation's time that its size has no part in
# In general; which policies do so, with which knobs, depends on the job (``named_remedies``).
ADVICE = {
    "dependency": "its consumer follows at once: cut it and its neighbours into pieces, or place the group on faster links",
    "outage": "a second port, or a transport that goes around a link that is down",
    "contention": "separate the two groups' links, or start them at different times",
    "order": "send what the next forward pass needs first",
    "window": "let more be on its way at once",
    "latency": "its size hardly matters: fewer, larger pieces or buckets",
    "bucket": "smaller buckets, the first above all",
    "barrier": "let the next forward pass begin layer by layer",
    "bandwidth": "nothing is left to hide it behind: fewer bytes, faster links, or more work a step",
}


class Cause(TypedDict):
    """A cause of exposed communication: time per step (mean over ranks), pieces, the costliest of them, what would help.

    ``remedies`` are the policies that ``advice`` names for this job; without them it is advice in general.
    """

    cause: str
    exposed_us: float
    count: float
    costliest: str
    costliest_us: float
    advice: str
    remedies: NotRequired[list[NamedRemedy]]


@dataclass
class _Cell:
    """Pieces of one class in the last step as (row, place in it), and beside them: their own exposed time, and that of all
    pieces that they stand for.
    """

    rows: list[tuple[Instances, int]]
    index: np.ndarray
    own_ps: np.ndarray
    exposed_ps: np.ndarray
    count: np.ndarray


def why(run: JobRun, scheduled: Workload, costs: Costs, forward_s: float) -> list[Cause]:
    """Return cause, exposed time per step (mean over ranks, added up over operations), count, costliest, advice.

    ``costs`` are those of the run: they say what half an operation would take.
    """
    begin, end = run.window()
    rank_classes = run.laid.rank_classes
    named = {operation.name: operation for operation in run.laid.operations}
    sizes = _Sizes(costs, OperationGroups(scheduled, rank_classes))
    seen = _Seen(run, scheduled, first_consumers(scheduled), sizes, _tasks(run))
    total = sum(rank_classes.counts)
    exposed: dict[str, float] = defaultdict(float)
    count: dict[str, float] = defaultdict(float)
    worst: dict[str, tuple[float, str]] = {}
    own, moved = spans(run, begin, end), within(run, begin, end)
    sent = _sent(run, named, seen.urgency)
    for rank_class, weight in enumerate(rank_classes.counts):
        compute = joined([*own[rank_class]["compute"], *own[rank_class]["update"]])
        cell = _exposed(run, moved[rank_class], compute, begin, end)
        over = [_computed(seen, rank_class, step) for step in range(run.laid.steps)]
        columns = (cell.index, cell.own_ps, cell.exposed_ps, cell.count)
        for (row, at), instance, open_ps, all_ps, pieces in zip(
            cell.rows, *(column.tolist() for column in columns), strict=True
        ):
            cause = _cause(seen, named[row.name], row, instance, open_ps, sent, over)
            exposed[cause] += all_ps * weight / total
            count[cause] += pieces * weight / total
            if open_ps > worst.get(cause, (0.0, ""))[0]:
                part = (
                    f", piece {at}"
                    if row.count > 1
                    else f", micro-batch {row.micro_batch}"
                    if named[row.name].per != "step"
                    else ""
                )
                worst[cause] = (open_ps, f"{row.name} on rank {rank_classes.ranks[rank_class]}{part}")
    _capped(exposed, count, worst, forward_s * PS)
    return [
        {
            "cause": cause,
            "exposed_us": exposed[cause] / 1e6,
            "count": count[cause],
            "costliest": worst[cause][1],
            "costliest_us": worst[cause][0] / 1e6,
            "advice": ADVICE[cause],
        }
        for cause in sorted(exposed, key=lambda each: (-exposed[each], each))
    ]


def _capped(
    exposed: dict[str, float], count: dict[str, float], worst: dict[str, tuple[float, str]], forward_ps: float
) -> None:
    """Without the barrier no more than the forward pass could have hidden it; the rest is bandwidth."""
    over = exposed.get("barrier", 0.0) - forward_ps
    if over > 0:
        exposed["barrier"] -= over
        exposed["bandwidth"] += over
        count["bandwidth"] += count["barrier"]
        worst["bandwidth"] = max(worst.get("bandwidth", (0.0, "")), worst["barrier"])


def within(run: JobRun, begin: int, end: int) -> dict[int, list[tuple[Instances, int, np.ndarray]]]:
    """Return, per rank class, the rows of operations that moved in the window: row, its first instance, which of its pieces.

    These are int64 of shape (pieces,).
    """
    rows, per_step = run.laid.rows, run.laid.per_step
    inside = np.flatnonzero((run.times.end > begin) & (run.times.moved < end))
    of = np.searchsorted([row.first for row in rows], inside % per_step, side="right") - 1
    sent = np.array([row.what == "operation" for row in rows], bool)[of]
    inside, of = inside[sent], of[sent]
    order = np.argsort(of, kind="stable")  # row by row, step by step
    inside, of = inside[order], of[order]
    parts = np.flatnonzero(np.diff(of, prepend=-1) | np.diff(inside // per_step, prepend=-1)).tolist()
    by_class: dict[int, list[tuple[Instances, int, np.ndarray]]] = defaultdict(list)
    for low, high in pairwise([*parts, len(of)]):
        row, first = rows[of[low]], int(inside[low]) // per_step * per_step + rows[of[low]].first
        for rank_class in dict.fromkeys(row.rank_classes):
            by_class[rank_class].append((row, first, inside[low:high] - first))
    return by_class


def _exposed(
    run: JobRun, groups: list[tuple[Instances, int, np.ndarray]], compute: Spans, begin: int, end: int
) -> _Cell:
    """Return what of a class's operations, as ``within`` found them, was exposed within the window."""
    every = np.concatenate([first + inside for _, first, inside in groups]) if groups else np.zeros(0, np.int64)
    starts, ends = np.maximum(run.times.moved[every], begin), np.minimum(run.times.end[every], end)
    open_ = (ends - starts) - covered(compute, starts.astype(np.float64), ends.astype(np.float64))
    cell = _Cell([], *(np.zeros(0) for _ in range(4)))
    parts: list[tuple[np.ndarray, ...]] = []
    at = 0
    for row, first, inside in groups:
        own = open_[at : at + len(inside)]
        at += len(inside)
        order = np.argsort(-own, kind="stable")
        order = order[own[order] > LEAST_PS]
        chosen = order[:: max(-(-len(order) // LOOKED_AT), 1)]
        if len(chosen):
            cell.rows += [(row, index) for index in inside[chosen].tolist()]
            factor = own[order].sum() / own[chosen].sum()
            same = np.full(len(chosen), len(order) / len(chosen))
            parts.append((first + inside[chosen], own[chosen], own[chosen] * factor, same))
    if parts:
        cell.index, cell.own_ps, cell.exposed_ps, cell.count = (
            np.concatenate([part[column] for part in parts]) for column in range(4)
        )
    return cell


class _Sizes:
    """Whether operations are so small that their size hardly matters."""

    def __init__(self, costs: Costs, groups: OperationGroups) -> None:
        self._costs, self._groups = costs, groups
        self._known: dict[tuple[str, int, tuple[int, ...]], bool] = {}

    def small(self, operation: Operation, row: Instances) -> bool:
        """Say whether more than ``FIXED`` of a piece's time is there whatever its size: a + b s, asked at s and s / 2."""
        key = (operation.name, row.size_bytes, row.rank_classes)
        if key not in self._known:
            ranks = self._groups.ranks(operation, row.rank_classes)
            whole, half = (
                seconds(self._costs, operation.op, size, ranks, operation.role)
                for size in (row.size_bytes, row.size_bytes // 2)
            )
            self._known[key] = 2 * half - whole > FIXED * whole
        return self._known[key]


@dataclass(frozen=True)
class _Seen:
    run: JobRun
    scheduled: Workload
    urgency: dict[str, int]
    sizes: _Sizes
    tasks: dict[str, list[Instances]]


@dataclass(frozen=True)
class _Queue:
    """What a queue sent, in order: from, to (ps), how urgent, whether a piece of something larger."""

    starts: np.ndarray
    ends: np.ndarray
    places: np.ndarray
    pieces: np.ndarray

    def out_of_order(self, ready: int, start: int, mine: int) -> float:
        """Return for how long less urgent operations went first between ``ready`` and ``start``, in ps."""
        first = int(np.searchsorted(self.starts, ready, side="right"))
        late = slice(first, int(np.searchsorted(self.starts, start, side="left")))
        less = self.places[late] > mine
        seconds = float((np.minimum(self.ends[late], start) - self.starts[late])[less].sum())
        before = first - 1
        if before >= 0 and self.places[before] > mine and not self.pieces[before]:
            seconds += max(float(min(self.ends[before], start) - ready), 0.0)
        return seconds

    def idle(self, begin: int, end: int) -> float:
        """Return for how long nothing was being sent between two moments, in ps."""
        inside = slice(
            int(np.searchsorted(self.ends, begin, side="right")), int(np.searchsorted(self.starts, end, side="left"))
        )
        busy = np.minimum(self.ends[inside], end) - np.maximum(self.starts[inside], begin)
        return float(end - begin - busy.sum())

    def idle_at(self, ready: int) -> bool:
        """Say whether nothing was being sent then."""
        at = int(np.searchsorted(self.starts, ready, side="right")) - 1
        return at < 0 or bool(self.ends[at] <= ready)


def _sent(run: JobRun, named: dict[str, Operation], urgency: dict[str, int]) -> dict[int, _Queue]:
    """Return what each queue sent."""
    rows = [row for row in run.laid.rows if row.what == "operation"]
    counts = np.array([row.count for row in rows], np.int64)
    urgent = np.array([_urgency(named[row.name], urgency) for row in rows], np.int64)
    firsts, of = np.array([row.first for row in rows], np.int64), np.repeat(np.arange(len(rows)), counts)
    at = np.arange(len(of)) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    steps = np.arange(run.laid.steps)[:, None]
    every, of = (at + steps * run.laid.per_step).ravel(), (of + steps * 0).ravel()
    every, of = (column[np.argsort(of, kind="stable")] for column in (every, of))  # row by row, step by step
    queue = run.laid.flat.queue[every]
    made = {}
    for number in np.unique(queue).tolist():
        mine, rows_of = every[queue == number], of[queue == number]
        order = np.argsort(run.times.moved[mine], kind="stable")
        mine, rows_of = mine[order], rows_of[order]
        made[number] = _Queue(run.times.moved[mine], run.times.end[mine], urgent[rows_of], counts[rows_of] > 1)
    return made


def _tasks(run: JobRun) -> dict[str, list[Instances]]:
    """Return the rows of tasks by name."""
    tasks: dict[str, list[Instances]] = defaultdict(list)
    for row in run.laid.rows:
        if row.what == "task":
            tasks[row.name].append(row)
    return tasks


def _urgency(operation: Operation, urgency: dict[str, int]) -> int:
    return min((urgency.get(payload.name, 0) for payload in operation.payloads), default=0)


def _cause(
    seen: _Seen,
    operation: Operation,
    row: Instances,
    instance: int,
    open_ps: float,
    sent: dict[int, _Queue],
    over: list[int],
) -> str:
    """Return the cause of one operation; ``over``: when the class's own compute ended, by step."""
    times, flat = seen.run.times, seen.run.laid.flat
    ready, start, moved, ended = (int(each[instance]) for each in (times.ready, times.start, times.moved, times.end))
    if (ended - moved) - int(flat.work_ps[instance]) > SHARE * open_ps:
        return "outage" if _met(seen.run, instance) else "contention"
    if operation.per == "micro-batch":
        return "dependency"
    barrier = (seen.scheduled.policy.boundary or "barrier") == "barrier"
    waited = start - ready > SHARE * open_ps
    queue = sent[int(flat.queue[instance])]
    if waited and not barrier:
        if queue.out_of_order(ready, start, _urgency(operation, seen.urgency)) > SHARE * open_ps:
            return "order"
        if queue.idle_at(ready):
            return "window"
    in_line = moved - ready - int(flat.latency_ps[instance]) > SHARE * open_ps
    if in_line and seen.sizes.small(operation, row):
        return "latency"
    if len(operation.payloads) > 1 and queue.idle(_first_made(seen, operation, row, instance), ready) > SHARE * open_ps:
        return "bucket"
    if barrier and ended > over[instance // seen.run.laid.per_step]:
        return "barrier"
    return "bandwidth"


def _met(run: JobRun, instance: int) -> bool:
    """Return whether an outage came over a link of an operation while it was on the wire."""
    flat, times = run.laid.flat, run.times
    mine = set(flat.load[flat.load_start[instance] : flat.load_start[instance + 1]].tolist())
    return any(
        each.begin_ps < times.end[instance]
        and each.end_ps > times.moved[instance]
        and any(run.laid.resource_of.get(link) in mine for link in each.links)
        for each in run.outages
    )


def _computed(seen: _Seen, rank_class: int, step: int) -> int:
    """Return when a class's last forward or backward task of a step ended."""
    rows = (
        row for rows in seen.tasks.values() for row in rows if row.kind in COMPUTE and rank_class in row.rank_classes
    )
    return max((int(seen.run.ends(row, step).max()) for row in rows), default=0)


def _first_made(seen: _Seen, operation: Operation, row: Instances, instance: int) -> int:
    """Return when the first of its payloads was made in that step."""
    run = seen.run
    step = instance // run.laid.per_step
    wanted = {name for payload in operation.payloads for name in payload.producers}
    ends = [
        int(run.ends(each, step)[-1])
        for name in wanted
        for each in seen.tasks.get(name, ())
        if each.rank_classes[0] in row.rank_classes
    ]
    return min(ends, default=int(run.times.ready[instance]))
