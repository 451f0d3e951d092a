"""The breakdown of a step: compute, exposed communication by role, and idle time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ringwright.analysis.intervals import length, union
from ringwright.engines.job.run import COMPUTE, JobRun
from ringwright.engines.job.step import PS

if TYPE_CHECKING:
    from ringwright.analysis.intervals import Spans

# Exposed time is ascribed to what blocks compute in the middle of a pass before what could wait to the end of the step.
URGENCY = ("tp", "cp", "ep", "pp", "embedding", "edp", "dp")


@dataclass
class Role:
    """One role, per rank and step: operations, bytes, seconds on the wire, seconds exposed, seconds queued."""

    operations: float = 0.0
    size_bytes: float = 0.0
    busy_s: float = 0.0
    exposed_s: float = 0.0
    queued_s: float = 0.0


@dataclass
class Account:
    """Means over the ranks of the last step, in seconds: step = compute + update + exposed + idle.

    ``overlap`` is the share of the communication time that compute hid.
    """

    step_s: float
    compute_s: float = 0.0
    forward_s: float = 0.0
    update_s: float = 0.0
    exposed_s: float = 0.0
    idle_s: float = 0.0
    overlap: float = 0.0
    roles: dict[str, Role] = field(default_factory=dict)

    @property
    def ceiling(self) -> float:
        """The most that crossing the end of the step can gain over ideal wait-free backpropagation: 1 + F/(F+B).

        1 where there is no backward pass, and so no gradient that could be reordered.
        """
        trains = self.compute_s > self.forward_s * (1 + 1e-9)
        return 1.0 + self.forward_s / self.compute_s if trains else 1.0


def account(run: JobRun) -> Account:
    """Return the breakdown of the last step of a run, averaged over ranks (each rank class weighted by its ranks)."""
    begin, end = run.window()
    rank_classes = run.laid.rank_classes
    result = Account((end - begin) / PS)
    own = spans(run, begin, end)
    hidden = sent = 0.0
    for rank_class, count in enumerate(rank_classes.counts):
        weight = count / sum(rank_classes.counts)
        on, off = _rank_class(own[rank_class], result, weight, result.step_s)
        sent += weight * on
        hidden += weight * (on - off)
    result.exposed_s = sum(role.exposed_s for role in result.roles.values())
    result.overlap = hidden / sent if sent else 0.0
    _counts(run, result)
    return result


def _rank_class(own: dict[str, list[Spans]], result: Account, weight: float, step_s: float) -> tuple[float, float]:
    """Add what one class did; return its seconds with communication on the wire, and those of them without compute."""
    compute, updates = joined(own["compute"]), joined([*own["compute"], *own["update"]])
    busy_s = length(compute) / PS
    result.compute_s += weight * busy_s
    result.forward_s += weight * length(joined(own["forward"])) / PS
    result.update_s += weight * (length(updates) / PS - busy_s)
    every = joined([spans for key, each in own.items() if key.startswith("role:") for spans in each])
    covered, outside = updates, length(joined([every, updates])) - length(updates)
    for role in sorted((key[5:] for key in own if key.startswith("role:")), key=_urgency):
        mine = joined(own[f"role:{role}"])
        wider = joined([covered, mine])
        entry = result.roles.setdefault(role, Role())
        entry.busy_s += weight * length(mine) / PS
        entry.exposed_s += weight * (length(wider) - length(covered)) / PS
        covered = wider
    result.idle_s += weight * max(0.0, step_s - length(covered) / PS)
    return length(every) / PS, outside / PS


def joined(parts: list[Spans]) -> Spans:
    """Return the union of lists of intervals, in ps."""
    if not parts:
        return np.zeros(0), np.zeros(0)
    return union(np.concatenate([each[0] for each in parts]), np.concatenate([each[1] for each in parts]))


def _urgency(role: str) -> tuple[int, str]:
    return (URGENCY.index(role) if role in URGENCY else len(URGENCY), role)


def spans(run: JobRun, begin: int, end: int) -> dict[int, dict[str, list[Spans]]]:
    """Return, per rank class and kind (compute, forward, update, role:NAME), the intervals within ``begin`` to ``end``, in ps."""
    by_class: dict[int, dict[str, list[Spans]]] = defaultdict(lambda: defaultdict(list))
    for row in run.laid.rows:
        kinds = _kinds(row.what, row.kind, row.role)
        for step in range(run.laid.steps) if kinds else ():
            where = run.span(row, step)
            starts, ends = np.maximum(run.times.moved[where], begin), np.minimum(run.times.end[where], end)
            inside = ends > starts
            if inside.any():
                for rank_class in dict.fromkeys(row.rank_classes):
                    for kind in kinds:
                        by_class[rank_class][kind].append((starts[inside], ends[inside]))
    return by_class


def _kinds(what: str, kind: str, role: str) -> tuple[str, ...]:
    if what == "operation":
        return (f"role:{role}",)
    if what != "task" or kind not in (*COMPUTE, "U"):
        return ()
    return ("update",) if kind == "U" else ("compute", "forward") if kind == "F" else ("compute",)


def _counts(run: JobRun, result: Account) -> None:
    """Add operations, bytes and time in the queue of the last step; a server's further phases are the same operation."""
    step, rank_classes = run.laid.steps - 1, run.laid.rank_classes
    for row in run.laid.rows:
        if row.what != "operation" or row.phase in ("server", "pull"):
            continue
        weight = sum(rank_classes.counts[rank_class] for rank_class in dict.fromkeys(row.rank_classes)) / sum(
            rank_classes.counts
        )
        entry = result.roles.setdefault(row.role, Role())
        entry.operations += weight * row.count
        entry.size_bytes += weight * (row.size_bytes * (row.count - 1) + row.last_bytes)
        where = run.span(row, step)
        entry.queued_s += weight * float((run.times.start[where] - run.times.ready[where]).sum()) / PS
