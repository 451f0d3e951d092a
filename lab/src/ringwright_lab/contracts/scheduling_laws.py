"""The laws that every scheduler keeps, whatever the job: each says what is broken, or nothing.

They are asked of the scheduled job (what it sends) and of its simulated run (when). Times are in ps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.job.run import simulate
from ringwright.model.rewrites import kind_of, operations
from ringwright.model.validity import workloads as validity
from ringwright.model.workload import PARTS
from ringwright_lab.contracts.outcome import DECLINED
from ringwright_lab.contracts.small_jobs import operation_rows, sent

if TYPE_CHECKING:
    from ringwright.engines.job.run import JobRun
    from ringwright.model.stages import Costs
    from ringwright.model.workload import Workload

STEPS = 3
ITS_OWN = ("policy", "assumptions")  # what a scheduler may change without saying so


@dataclass(frozen=True)
class Scheduled:
    """A job before and after its scheduler, what the costs are, and ``changes``: fields that the scheduler says it changes."""

    before: Workload
    job: Workload
    costs: Costs
    run: JobRun = field(repr=False)
    changes: tuple[str, ...] = ()


def legal(each: Scheduled) -> str | None:
    """The table of rules of a Workload, its policy among them."""
    findings = validity.check(each.job, warnings=False)
    return f"{findings[0].rule}: {findings[0].message} ({findings[0].where})" if findings else None


def alone(each: Scheduled) -> str | None:
    """Nothing but the policy changes, and what the scheduler says it changes; every part that is set is signed."""
    before, after = each.before, each.job
    allowed = (*ITS_OWN, *each.changes)
    changed = [name for name in _names(before) if getattr(before, name) != getattr(after, name) and name not in allowed]
    if changed:
        return f"it changes {', '.join(changed)}; CHANGES beside it names what a scheduler changes besides the policy"
    new = [part for part in PARTS if getattr(after.policy, part) != getattr(before.policy, part)]
    unsigned = [part for part in new if part not in after.policy.by]
    told = after.policy.by or after.applied != before.applied or after.assumptions != before.assumptions
    if unsigned or not told:
        return f"the policy says of no one who set {', '.join(unsigned) or 'anything'}: use workload.with_policy"
    return None


def _names(workload: Workload) -> list[str]:
    return [each.name for each in fields(workload)]


def work(each: Scheduled) -> str | None:
    """The same tasks take the same time, in whatever order, unless the scheduler says that it changes tasks' work."""
    if "payloads" in each.changes:
        return f"{DECLINED}it cuts tasks and payloads anew"
    before, after = (Counter((task.name, task.seconds) for task in job.tasks) for job in (each.before, each.job))
    strange = (before - after) + (after - before)
    return f"task {min(strange)[0]} is not what it was" if strange else None


def carried(each: Scheduled) -> str | None:
    """Every payload is in exactly one operation, and the pieces of an operation are its bytes."""
    changed = operations(each.job)
    times = Counter(payload.name for operation in changed for payload in operation.payloads)
    for payload in each.job.payloads:
        if times[payload.name] != 1:
            return f"payload {payload.name} is sent {times[payload.name]} times"
    is_whole = all(kind_of(rewrite.kind).WHOLE for rewrite in each.job.policy.rewrites or ())
    for operation in changed:
        piece, rest = operation.sizes()
        if piece * (operation.pieces - 1) + rest != operation.size_bytes or not 0 < rest <= piece:
            return f"{operation.name}: pieces of {piece} B and {rest} B are not its {operation.size_bytes} B"
        total = sum(payload.size_bytes for payload in operation.payloads)
        if is_whole and total != operation.size_bytes:
            return f"{operation.name} sends {operation.size_bytes} B of payloads of {total} B"
    return None


def in_time(each: Scheduled) -> str | None:
    """A piece starts when all that it carries is made; what uses a payload starts when all pieces with a byte of it ended."""
    run = each.run
    carriers = {payload.name: one for one in operations(each.job) for payload in one.payloads}
    rows = {row.name: row for row in run.laid.rows if row.what == "task"}
    phases = defaultdict(list)
    for row in operation_rows(run):
        phases[row.name].append(row)
    for payload in each.job.payloads:
        one = carriers[payload.name]
        mine = phases[one.name]
        pieces = [piece for piece in range(one.pieces) if payload in one.carried(piece)]
        if payload.per != "step" or any(row.count != one.pieces for row in mine):
            continue  # of micro-batches and of several groups, rows hold more than the pieces
        for step in range(run.laid.steps):
            begun = int(run.starts(mine[0], step)[pieces].min())
            if any(int(run.ends(rows[task], step).max()) > begun for task in payload.producers):
                return f"{one.name} starts before {payload.name} is made"
            if any((run.starts(after, step) < run.ends(before, step)).any() for before, after in pairwise(mine)):
                return f"{one.name}: a phase starts before the one before it ended"
            done = int(run.ends(mine[-1], step)[pieces].max())
            for task, distance in payload.consumers:
                if step + distance < run.laid.steps and int(run.starts(rows[task], step + distance).min()) < done:
                    return f"{task} uses {payload.name} before it has come"
    return None


def conserves(each: Scheduled) -> str | None:
    """While something may be sent and is not, its queue has something under way."""
    run = each.run
    if each.job.policy.queue is not None and each.job.policy.queue.gates:
        return f"{DECLINED}gates hold traffic back"
    for queue in _free(run):
        passed = sent(run, queue)
        busy: list[list[int]] = []
        for _, start, end, _ in passed:
            if busy and start <= busy[-1][1]:
                busy[-1][1] = max(busy[-1][1], end)
            else:
                busy.append([start, end])
        for ready, start, _, at in passed:
            if start != ready and not any(begin <= ready and start <= end for begin, end in busy):
                return (
                    f"operation {at} is ready at {ready / 1e12:.6g} s, and its queue idles until {start / 1e12:.6g} s"
                )
    return None


def _free(run: JobRun) -> list[int]:
    queues = run.laid.flat.queues
    return [queue for queue in range(len(queues.window)) if not queues.strict[queue]]


def windows(each: Scheduled) -> str | None:
    """In flight: at most the window, a blocking queue one operation more, and more than a window only for one alone."""
    flat = each.run.laid.flat
    for queue in _free(each.run):
        under_way: list[tuple[int, float]] = []
        window = flat.queues.window[queue]
        for _, start, end, at in sent(each.run, queue):
            under_way = [(until, size) for until, size in under_way if until > start]
            before = sum(size for _, size in under_way)
            is_kept = (
                before < window if flat.queues.blocking[queue] else before == 0 or before + flat.size[at] <= window
            )
            if not is_kept:
                return f"{before + flat.size[at]:g} in flight at {start / 1e12:.6g} s; the window is {window:g}"
            under_way.append((end, float(flat.size[at])))
    return None


def urgent(each: Scheduled) -> str | None:
    """Nothing more urgent waits when something starts, where the policy names urgencies."""
    policy, flat = each.job.policy, each.run.laid.flat
    order = policy.queue
    if order is None or not order.keys or order.gates or not order.blocking or policy.agreement == "index":
        return f"{DECLINED}no order by urgency"
    for queue in _free(each.run):
        passed = np.array(sent(each.run, queue), np.int64).reshape(-1, 4)
        ready, starts, instance = passed[:, 0], passed[:, 1], passed[:, 3]
        keys = flat.key[instance]
        for begun, start, at, key in zip(ready, starts, instance, keys, strict=True):
            overtaken = (ready < start) & (start < starts) & (keys < key)
            if begun <= start and overtaken.any():
                other = instance[overtaken.argmax()]
                return f"operation {at} starts at {start / 1e12:.6g} s while {other}, more urgent, waits"
    return None


def bounded(each: Scheduled) -> str | None:
    """The run is no shorter than its compute, nor than what each queue has to do."""
    run, flat = each.run, each.run.laid.flat
    whole = int(run.times.end.max())
    compute = sum(task.seconds for task in each.job.tasks if task.stream == "compute") * 1e12 * run.laid.steps
    if whole < compute * (1 - 1e-9) - 1e3 and len({task.of for task in each.job.tasks}) == 1:
        return f"{whole / 1e12:.6g} s is less than its compute, {compute / 1e12:.6g} s"
    for queue in _free(run):
        busy = int(flat.work_ps[flat.queue == queue].sum())
        if whole < busy:
            return f"{whole / 1e12:.6g} s is less than what queue {queue} sends, {busy / 1e12:.6g} s"
    return None


def one_order(each: Scheduled) -> str | None:
    """The ranks of a group issue the same operations in the same order, though some are slower; by index, all ranks do."""
    run = simulate(each.job, each.costs, steps=STEPS, slowdowns={0: 1.3, 3: 0.8}, folded=False)
    orders: dict[int, list[tuple[int, int, str, int]]] = defaultdict(list)
    issued = {(row.name, row.rank_classes): row for row in reversed(operation_rows(run))}  # of several phases the first
    for row in issued.values():
        for step in range(STEPS):
            for piece, start in enumerate(run.starts(row, step).tolist()):
                for rank_class in row.rank_classes:
                    orders[rank_class].append((start, step, row.name, piece))
    mesh = each.job.mesh
    groups = {mesh.group(payload.axes, rank) for payload in each.job.payloads[:1] for rank in range(mesh.size)}
    for group in groups:
        if len({tuple(sorted(orders[rank_class])) for rank_class in group}) > 1:
            return f"the ranks {group} issue different operations, or in different orders"
    names = {tuple(name for _, _, name, _ in sorted(order)) for order in orders.values()}
    if each.job.policy.agreement == "index" and len(names) > 1:
        return "ranks issue in different orders though operations go by index"
    return None


def folds(each: Scheduled) -> str | None:
    """Ranks that are alike are simulated once: the answer with a slow rank is that of all ranks one by one."""
    folded, whole = (
        simulate(each.job, each.costs, steps=STEPS, slowdowns={1: 1.5}, folded=alike) for alike in (True, False)
    )
    class_of = folded.laid.rank_classes.class_of
    one, other = ends(folded), ends(whole)
    for (task, rank), when in other.items():
        if not np.array_equal(when, one[task, int(class_of[rank])]):
            return f"{task} on rank {rank} ends at other times when ranks that are alike are simulated once"
    return None


def ends(run: JobRun) -> Mapping[tuple[str, int], np.ndarray]:
    """Return the ends of every task in every step by task and rank class, each int64 ps of shape (instances,)."""
    return {
        (row.name, row.rank_classes[0]): np.concatenate([run.ends(row, step) for step in range(run.laid.steps)])
        for row in run.laid.rows
        if row.what == "task"
    }


LAWS: dict[str, Callable[[Scheduled], str | None]] = {
    "legal": legal,
    "alone": alone,
    "work": work,
    "carried": carried,
    "in-time": in_time,
    "conserves": conserves,
    "windows": windows,
    "urgent": urgent,
    "bounded": bounded,
}
ON_A_MESH: dict[str, Callable[[Scheduled], str | None]] = {"one-order": one_order, "folds": folds}
