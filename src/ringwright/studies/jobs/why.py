"""Why communication was not hidden: each exposed operation of the last step gets one cause, and what would help.

Causes, in the order in which they are tried. *contention*: it shared a link and took longer than alone. *dependency*: its
consumer follows within the same pass. *order*: when it was ready a less urgent operation was being sent. *window*: it was
ready and nothing was being sent. *bucket*: it waited for other gradients of its bucket. *barrier*: it ran after backward, and
the next forward pass could have begun without it (at most as much as that pass takes). *bandwidth*: nothing was left to hide
it behind.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringwright.analysis.intervals import covered, union
from ringwright.engines.job.rewrites import Operation
from ringwright.engines.job.run import COMPUTE, JobRun
from ringwright.engines.job.step import PS, Row
from ringwright.schedulers.order import first_consumers
from ringwright.workload import Workload

LOOKED_AT = 4000  # operations of a cell, the most exposed
SHARE = 0.2  # of the exposed time that a cause must explain
ADVICE = {
    "dependency": "its consumer follows at once: cut it and its neighbours into pieces, or place the group on faster links",
    "contention": "separate the two groups' links, or start them at different times",
    "order": "send what the next forward pass needs first: p3, bytescheduler, pace",
    "window": "let more be on its way at once: a larger credit or window",
    "bucket": "smaller buckets, the first above all: pytorch-ddp:bucket_cap_mb=10",
    "barrier": "let the next forward pass begin layer by layer: bytescheduler, p3, pace",
    "bandwidth": "nothing is left to hide it behind: fewer bytes, faster links, or more work a step",
}


@dataclass
class _Cell:
    """The operations of one cell in the last step: rows of (row, place in it), and arrays beside them."""

    rows: list[tuple[Row, int]]
    index: np.ndarray
    exposed_ps: np.ndarray


def why(run: JobRun, scheduled: Workload, forward_s: float) -> list[dict[str, Any]]:
    """Return cause, exposed time per step (mean over ranks, added up over operations), count, costliest, advice."""
    begin, end = run.window()
    cells = run.laid.cells
    named = {operation.name: operation for operation in run.laid.operations}
    urgency = first_consumers(scheduled)
    total = sum(cells.counts)
    exposed: dict[str, float] = defaultdict(float)
    count: dict[str, float] = defaultdict(float)
    worst: dict[str, tuple[float, str]] = {}
    compute = _compute(run, begin, end)
    for cell, weight in enumerate(cells.counts):
        found = _exposed(run, cell, compute[cell], begin, end)
        last = max((float(spans[1]) for spans in zip(*compute[cell], strict=True)), default=float(begin))
        sent = _sent(run, cell, named, urgency)
        for (row, at), instance, open_ps in zip(
            found.rows, found.index.tolist(), found.exposed_ps.tolist(), strict=True
        ):
            cause = _cause(run, scheduled, named[row.name], row, instance, open_ps, urgency, sent, last)
            exposed[cause] += open_ps * weight / total
            count[cause] += weight / total
            if open_ps > worst.get(cause, (0.0, ""))[0]:
                part = (
                    f", piece {at}"
                    if row.count > 1
                    else f", micro-batch {row.micro_batch}"
                    if named[row.name].per != "step"
                    else ""
                )
                worst[cause] = (open_ps, f"{row.name} on rank {cells.ranks[cell]}{part}")
    _capped(exposed, count, worst, forward_s * PS)
    return [
        {
            "cause": cause, "exposed_us": exposed[cause] / 1e6, "count": count[cause], "costliest": worst[cause][1],
            "costliest_us": worst[cause][0] / 1e6, "advice": ADVICE[cause],
        }
        for cause in sorted(exposed, key=lambda each: (-exposed[each], each))
    ]  # fmt: skip


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


def _compute(run: JobRun, begin: int, end: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, per cell, when it computed within the window."""
    parts: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in run.laid.cells.of]
    for row in run.laid.rows:
        if row.what == "task" and row.kind in (*COMPUTE, "U"):
            for step in range(run.laid.steps):
                where = run.span(row, step)
                parts[row.cells[0]].append(
                    (np.maximum(run.times.start[where], begin), np.minimum(run.times.end[where], end))
                )
    return [_union(each) for each in parts]


def _union(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    starts, ends = (np.concatenate([each[at] for each in parts]) if parts else np.zeros(0) for at in (0, 1))
    kept = ends > starts
    return union(starts[kept], ends[kept])


def _exposed(run: JobRun, cell: int, compute: tuple[np.ndarray, np.ndarray], begin: int, end: int) -> _Cell:
    """Return the operations of a cell that were exposed within the window, the longest first."""
    rows: list[tuple[Row, int]] = []
    index = []
    for row in run.laid.rows:
        if row.what == "operation" and cell in row.cells:
            for step in range(run.laid.steps):
                where = run.span(row, step)
                inside = np.flatnonzero((run.times.end[where] > begin) & (run.times.moved[where] < end))
                rows += [(row, at) for at in inside.tolist()]
                index.append(where.start + inside)
    every = np.concatenate(index) if index else np.zeros(0, np.int64)
    starts, ends = np.maximum(run.times.moved[every], begin), np.minimum(run.times.end[every], end)
    open_ = (ends - starts) - covered(compute, starts.astype(np.float64), ends.astype(np.float64))
    order = np.argsort(-open_, kind="stable")[:LOOKED_AT]
    order = order[open_[order] > 1e3]  # a nanosecond
    return _Cell([rows[at] for at in order.tolist()], every[order], open_[order])


Sent = dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]


def _sent(run: JobRun, cell: int, named: dict[str, Operation], urgency: dict[str, int]) -> Sent:
    """Return per queue of a cell the times on the wire, in order, and how urgent each was."""
    found: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = defaultdict(list)
    for row in run.laid.rows:
        if row.what != "operation" or cell not in row.cells:
            continue
        place = min((urgency.get(payload.name, 0) for payload in named[row.name].payloads), default=0)
        for step in range(run.laid.steps):
            where = run.span(row, step)
            queue = int(run.laid.flat.queue[where.start])
            found[queue].append((run.times.moved[where], run.times.end[where], np.full(row.count, place)))
    made = {}
    for queue, parts in found.items():
        starts, ends, places = (np.concatenate([each[at] for each in parts]) for at in range(3))
        order = np.argsort(starts, kind="stable")
        made[queue] = (starts[order], ends[order], places[order])
    return made


def _cause(
    run: JobRun, scheduled: Workload, operation: Operation, row: Row, instance: int, open_ps: float,
    urgency: dict[str, int], sent: Sent, last: float,
) -> str:  # fmt: skip
    times, flat = run.times, run.laid.flat
    ready, start, moved, ended = (int(each[instance]) for each in (times.ready, times.start, times.moved, times.end))
    if (ended - moved) - int(flat.work_ps[instance]) > SHARE * open_ps:
        return "contention"
    if operation.per == "micro-batch":
        return "dependency"
    mine = min((urgency.get(payload.name, 0) for payload in operation.payloads), default=0)
    barrier = (scheduled.policy.boundary or "barrier") == "barrier"
    if start - ready > SHARE * open_ps and not barrier:
        starts, ends, places = sent[int(flat.queue[instance])]
        at = int(np.searchsorted(starts, ready, side="right")) - 1
        if at >= 0 and ends[at] > ready and places[at] > mine:
            return "order"
        if at < 0 or ends[at] <= ready:
            return "window"
    if len(operation.payloads) > 1 and ready - _first_made(run, operation, row, instance) > SHARE * open_ps:
        return "bucket"
    if barrier and ended > last - open_ps:
        return "barrier"
    return "bandwidth"


def _first_made(run: JobRun, operation: Operation, row: Row, instance: int) -> int:
    """Return when the first of its payloads was made in that step."""
    step = instance // run.laid.per_step
    wanted = {name for payload in operation.payloads for name in payload.producers}
    ends = [
        int(run.ends(each, step)[-1])
        for each in run.laid.rows
        if each.what == "task" and each.name in wanted and each.cells[0] in row.cells
    ]
    return min(ends, default=int(run.times.ready[instance]))
