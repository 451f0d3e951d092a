"""Rules of a policy: parts that are known, that fit the workload, and that do not contradict each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites.kind import kind_of, settings_of
from ringwright.model.validity.workload_finding import Finding, doubt

if TYPE_CHECKING:
    from ringwright.model.workload import Policy, Queue, Workload

BOUNDARIES = ("barrier", "layer", "reads")
AGREEMENTS = ("program", "index", "leader", "static", "server")
UNITS = ("bytes", "operations")
STATES = ("waiting", "running")


def contradictions(policy: Policy) -> Iterator[Finding]:
    """Yield parts of a policy that contradict each other, naming who set each."""
    queue, by = policy.queue, policy.by
    ordered = queue is not None and (queue.keys or queue.random is not None)
    if policy.agreement == "index" and ordered:
        yield Finding(
            "policy",
            f"{by.get('agreement')} starts operations in the order of their index, {by.get('queue')} by urgency",
            "policy",
            "compose with a scheduler that agrees by a leader or a static order",
        )
    kinds = [rewrite.kind for rewrite in policy.rewrites or ()]
    if "substitute" in kinds and set(kinds[: kinds.index("substitute")]) & {"fuse", "threshold", "groups", "select"}:
        what = "factors cannot be taken of fused gradients"
        yield Finding("policy", what, "policy", "substitute first, then fuse")


def policy(workload: Workload) -> Iterator[Finding]:
    """Yield what is wrong with the policy, for this workload."""
    held = workload.policy
    for name, value, known in (("boundary", held.boundary, BOUNDARIES), ("agreement", held.agreement, AGREEMENTS)):
        if value is not None and value not in known:
            yield Finding("policy", f"{name} is '{value}'", f"policy {name}", f"one of: {', '.join(known)}")
    yield from contradictions(held)
    yield from _rewrites(workload)
    if held.queue is not None:
        yield from _queue(workload, held.queue)
    for of, slots in workload.order.items():
        yield from _order(workload, "order", of, slots)
    for of, order in (held.order or {}).items():
        yield from _order(workload, "policy order", of, order)


def _rewrites(workload: Workload) -> Iterator[Finding]:
    roles = {payload.role for payload in workload.payloads}
    for at, rewrite in enumerate(workload.policy.rewrites or ()):
        where = f"policy rewrite {at}"
        try:
            settings = settings_of(rewrite)
        except UsageError as error:
            yield Finding("policy", error.what, where, error.remedy)
            continue
        if roles and not roles & set(rewrite.roles):
            what = f"a {rewrite.kind} of {', '.join(rewrite.roles)}, which no payload is"
            yield doubt("policy", what, where, f"roles here: {', '.join(sorted(roles))}")
        named = getattr(kind_of(rewrite.kind), "names", None)
        if named is not None:
            yield from _names(workload, rewrite.kind, named(settings), where)


def _names(workload: Workload, kind: str, names: Iterable[str], where: str) -> Iterator[Finding]:
    for name in names:
        if name not in workload.payload:
            yield Finding("policy", f"a {kind} names a payload '{name}' that does not exist", where, "leave it out")


def _queue(workload: Workload, queue: Queue) -> Iterator[Finding]:
    for name in queue.keys:
        if name not in workload.payload:
            yield Finding("queue", f"a key for '{name}', which is no payload", f"key {name}", "keys name payloads")
    yield from _windows(workload, queue)
    yield from _gates(workload, queue)
    if not math.isfinite(queue.issue_s) or queue.issue_s < 0:
        yield Finding("queue", f"issuing takes {queue.issue_s} s", "queue", "a time of 0 s or more")


def _windows(workload: Workload, queue: Queue) -> Iterator[Finding]:
    roles = {payload.role for payload in workload.payloads}
    networks = {payload.network for payload in workload.payloads if payload.network}
    for role, (amount, unit) in queue.windows.items():
        where = f"window of {role}"
        if math.isnan(amount) or amount <= 0:
            what = f"a window of {amount} {unit}: nothing could ever start"
            yield Finding("queue", what, where, "at least one operation, or one byte")
        if unit not in UNITS:
            yield Finding("queue", f"a window in '{unit}'", where, f"one of: {', '.join(UNITS)}")
    for what, named in (("window", queue.windows), ("traffic class", queue.traffic)):
        for role in named:
            if role not in roles and not (named is queue.traffic and role in networks):
                message = f"a {what} of '{role}', which no payload is"
                yield doubt("queue", message, f"{what} of {role}", f"roles here: {', '.join(sorted(roles))}")


def _gates(workload: Workload, queue: Queue) -> Iterator[Finding]:
    tags = {task.tag for task in workload.tasks if task.tag}
    numbers = {0, *queue.traffic.values()}
    for at, gate in enumerate(queue.gates):
        where = f"gate {at}"
        if gate.state not in STATES:
            yield Finding("queue", f"a gate by what is '{gate.state}'", where, f"one of: {', '.join(STATES)}")
        if isinstance(gate.by, str) and gate.by not in tags:
            yield doubt("queue", f"a gate by tasks tagged '{gate.by}', of which there are none", where, "tag the tasks")
        if gate.closed not in numbers or (isinstance(gate.by, int) and gate.by not in numbers):
            yield doubt("queue", "a gate of a traffic class that no role has", where, "give roles a traffic class")


def _order(workload: Workload, source: str, of: str, order: tuple[tuple[Any, ...], ...]) -> Iterator[Finding]:
    """Yield what an order of slots, or of tasks, misses, has twice, or names in vain."""
    if of not in {each.name for each in workload.classes}:
        yield Finding("order", f"an order for '{of}', which is no class", f"{source}, class {of}", "name a class")
        return
    if not order:
        return
    mine = [task for task in workload.tasks if task.of == of and task.per == "micro-batch"]
    by_task = source == "policy order"
    units = dict.fromkeys((task.name,) if by_task else task.slot for task in mine)
    wanted = {(*unit, at) for unit in units for at in range(workload.micro_batches)}
    batches = workload.micro_batches
    order = tuple((*each[:-1], each[-1] + batches if -batches <= each[-1] < 0 else each[-1]) for each in order)
    counts, what, every = Counter(order), "task" if by_task else "slot", "every task" if by_task else "every slot"
    where = f"{source}, class {of}"
    for entry in sorted(wanted - set(counts))[:3]:
        yield Finding("order", f"the order never runs {_named(entry)}", where, f"{every}, every micro-batch")
    for entry in sorted(set(counts) - wanted)[:3]:
        yield Finding("order", f"the order runs {_named(entry)}, which is no {what}", where, "leave it out")
    for entry, count in counts.items():
        if count > 1:
            yield Finding("order", f"the order runs {_named(entry)} {count} times", where, "once")
            return


def _named(entry: tuple[Any, ...]) -> str:
    if len(entry) == 2:
        return f"{entry[0]}, micro-batch {entry[1]}"
    return f"{entry[0]} of virtual stage {entry[1]}, micro-batch {entry[2]}"
