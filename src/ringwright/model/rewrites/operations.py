"""From the payloads of a step to its operations, by the policy's rewrites one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ringwright.model.rewrites.kind import kind_of, settings_of
from ringwright.model.rewrites.operation import Operation, alone
from ringwright.model.workload import Rewrite, Workload


def operations(workload: Workload) -> list[Operation]:
    """Return the operations of one step; UsageError for rewrites that cannot be applied one after another."""
    keys = workload.policy.queue.keys if workload.policy.queue else {}
    order = {each.name: at for at, each in enumerate(workload.gradients(tuple({p.role for p in workload.payloads})))}
    listed = sorted(workload.payloads, key=lambda each: order.get(each.name, -1))
    current = [alone(payload) for payload in listed]
    for rewrite in workload.policy.rewrites or ():
        current = applied(rewrite, current)
    return [_keyed(each, keys) for each in current] if keys else current


def applied(rewrite: Rewrite, current: list[Operation]) -> list[Operation]:
    """Return the operations after a rewrite: those of other roles first, as they were."""
    touched = [each for each in current if each.role in rewrite.roles]
    if not touched:
        return current
    untouched = [each for each in current if each.role not in rewrite.roles]
    return untouched + list(kind_of(rewrite.kind).rewritten(touched, settings_of(rewrite)))


def _keyed(operation: Operation, keys: Mapping[str, int]) -> Operation:
    known = [keys[payload.name] for payload in operation.payloads if payload.name in keys]
    return replace(operation, key=min(known)) if known else operation


def is_sent_whole(sent: Iterable[Operation]) -> bool:
    """Say whether every payload travels in full and as it is, so that any correct sum is the plain one's."""
    return all(
        each.op != "factors" and each.size_bytes >= sum(payload.size_bytes for payload in each.payloads)
        for each in sent
    )
