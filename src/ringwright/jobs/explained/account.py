"""The breakdown of a step: compute, exposed communication by role, and idle time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from ringwright.analysis.intervals import length, union
from ringwright.engines.job.run import COMPUTE, JobRun
from ringwright.ground.units import PS

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
    """Means over the ranks of a step, in seconds: step = compute + update + exposed + idle.

    ``sent_s`` is the time in which anything was on the wire, ``overlap`` the share of it that compute hid.
    """

    step_s: float
    compute_s: float = 0.0
    forward_s: float = 0.0
    update_s: float = 0.0
    exposed_s: float = 0.0
    idle_s: float = 0.0
    sent_s: float = 0.0
    overlap: float = 0.0
    roles: dict[str, Role] = field(default_factory=dict)

    @property
    def ceiling(self) -> float:
        """The most that crossing the end of the step can gain over ideal wait-free backpropagation: 1 + F/(F+B).

        1 where there is no backward pass, and so no gradient that could be reordered.
        """
        trains = self.compute_s > self.forward_s * (1 + 1e-9)
        return 1.0 + self.forward_s / self.compute_s if trains else 1.0


def account(run: JobRun, steps: range | None = None) -> Account:
    """Return the breakdown of the last step of a run, averaged over ranks (each rank class weighted by its ranks).

    ``steps``: the mean of these instead.
    """
    last = run.laid.steps - 1
    steps = range(last, last + 1) if steps is None else steps
    begin, end = (run.finished(steps[0] - 1) if steps[0] else 0), run.finished(steps[-1])
    rank_classes = run.laid.rank_classes
    result = Account((end - begin) / PS)
    own = spans(run, begin, end)
    hidden = 0.0
    for rank_class, count in enumerate(rank_classes.counts):
        weight = count / sum(rank_classes.counts)
        on, off = _rank_class(own[rank_class], result, weight, result.step_s)
        result.sent_s += weight * on
        hidden += weight * (on - off)
    result.exposed_s = sum(role.exposed_s for role in result.roles.values())
    result.overlap = hidden / result.sent_s if result.sent_s else 0.0
    _counts(run, result, steps)
    return result if len(steps) == 1 else combined([(1.0 / len(steps), result)])


def combined(parts: Sequence[tuple[float, Account]]) -> Account:
    """Return the sum of breakdowns, each so many times."""

    def total(name: str) -> float:
        return sum(weight * float(getattr(each, name)) for weight, each in parts)

    whole = Account(0.0)
    for name in (each.name for each in fields(Account) if each.name != "roles"):
        setattr(whole, name, total(name))
    for weight, each in parts:
        for name, role in each.roles.items():
            entry = whole.roles.setdefault(name, Role())
            for figure in fields(Role):
                value = getattr(entry, figure.name) + weight * getattr(role, figure.name)
                setattr(entry, figure.name, value)
    whole.overlap = 1.0 - whole.exposed_s / whole.sent_s if whole.sent_s > 0 else 0.0
    return whole


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
    starts, ends = np.maximum(run.times.moved, begin), np.minimum(run.times.end, end)
    inside = np.flatnonzero(ends > starts)
    numbers, lists, band_lists = _lists(run)
    mine = band_lists[run.laid.of[inside % run.laid.per_step]]  # which list of numbers each instance has
    lengths = np.array([len(each) for each in lists])
    first, many = np.cumsum(lengths) - lengths, lengths[mine]
    within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    number = np.array([each for listed in lists for each in listed], np.int32)[np.repeat(first[mine], many) + within]
    order = np.argsort(number, kind="stable")
    instances, bounds = np.repeat(inside, many)[order], np.cumsum(np.bincount(number, minlength=len(numbers))).tolist()
    by_class: dict[int, dict[str, list[Spans]]] = defaultdict(lambda: defaultdict(list))
    for (rank_class, kind), low, high in zip(numbers, [0, *bounds], bounds, strict=False):
        if high > low:
            by_class[rank_class][kind].append((starts[instances[low:high]], ends[instances[low:high]]))
    return by_class


def _lists(run: JobRun) -> tuple[list[tuple[int, str]], list[tuple[int, ...]], np.ndarray]:
    """Return (rank class, kind) by number, the lists of numbers that instances count for, and which list each band has."""
    numbers: dict[tuple[int, str], int] = {}
    lists: dict[tuple[int, ...], int] = {}
    known: dict[tuple[object, ...], int] = {}
    of = np.zeros(len(run.laid.bands), np.int64)
    for at, band in enumerate(run.laid.bands):
        key = (band.what, band.kind, band.role, band.rank_classes)
        if key not in known:
            mine = [
                numbers.setdefault((rank_class, kind), len(numbers))
                for rank_class in dict.fromkeys(band.rank_classes)
                for kind in _kinds(band.what, band.kind, band.role)
            ]
            known[key] = lists.setdefault(tuple(mine), len(lists))
        of[at] = known[key]
    return list(numbers), list(lists), of


def _kinds(what: str, kind: str, role: str) -> tuple[str, ...]:
    if what == "operation":
        return (f"role:{role}",)
    if what != "task" or kind not in (*COMPUTE, "U"):
        return ()
    return ("update",) if kind == "U" else ("compute", "forward") if kind == "F" else ("compute",)


def _counts(run: JobRun, result: Account, steps: range) -> None:
    """Add operations, bytes and time in the queue of some steps; a server's further phases are the same operation."""
    rank_classes, laid = run.laid.rank_classes, run.laid
    bands = [each for each in laid.bands if each.what == "operation" and each.phase not in ("server", "pull")]
    roles = {role: at for at, role in enumerate(dict.fromkeys(each.role for each in bands))}
    if not bands:
        return
    total = sum(rank_classes.counts)
    shares = {
        each: sum(rank_classes.counts[one] for one in dict.fromkeys(each)) / total
        for each in {b.rank_classes for b in bands}
    }
    rows, width, first = (np.array([getattr(each, name) for each in bands]) for name in ("rows", "width", "first"))
    size = np.array([each.size_bytes * (each.width - 1) + each.last_bytes for each in bands], np.float64)
    of = np.repeat(np.arange(len(bands)), rows)  # the band of each row: added up row by row
    at = np.repeat(first - (np.cumsum(rows) - rows) * width, rows) + np.arange(len(of)) * width[of]
    weight, role = (
        np.array([shares[each.rank_classes] for each in bands])[of],
        np.array([roles[each.role] for each in bands])[of],
    )
    mine = slice(steps[0] * laid.per_step, (steps[-1] + 1) * laid.per_step)
    in_queue = (run.times.start[mine] - run.times.ready[mine]).reshape(len(steps), -1).sum(axis=0)
    waited = np.concatenate([[0], np.cumsum(in_queue)])
    queued = weight * (waited[at + width[of]] - waited[at]).astype(np.float64) / PS
    sums = [(len(steps) * np.bincount(role, weight * what)).tolist() for what in (width[of], size[of])]
    for name, operations, size_bytes, queued_s in zip(roles, *sums, np.bincount(role, queued).tolist(), strict=True):
        entry = result.roles.setdefault(name, Role())
        entry.operations, entry.size_bytes, entry.queued_s = operations, size_bytes, queued_s
