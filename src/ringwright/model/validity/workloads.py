"""What makes a Workload legal: a table of rules, each of which names the task or payload, its class or rank, and the remedy.

What is doubtful and can still run (a payload that nobody waits for) is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ringwright.ground.errors import WorkloadError
from ringwright.model.validity.workload_finding import Finding
from ringwright.model.validity.workload_order import cycles, orders, sequences, tokens
from ringwright.model.validity.workload_parts import classes, edges, mesh, names, payloads, resources, tasks
from ringwright.model.validity.workload_policy import contradictions, policy
from ringwright.model.validity.workload_values import layouts, values, waits

if TYPE_CHECKING:
    from ringwright.model.workload import Workload

__all__ = ["RULES", "Finding", "check", "contradictions", "require", "sequences"]

RULES = {
    "name": "tasks, payloads, classes and resources have names of their own",
    "mesh": "the mesh has axes of at least one rank, the step at least one micro-batch",
    "class": "every rank is of exactly one class",
    "task": "a task is of a known kind and class and takes a time that is a number",
    "resource": "what a task demands exists",
    "tokens": "tokens that are taken are given back, and never are more needed than there are",
    "edge": "an edge joins two tasks of one class",
    "payload": "a payload has a known operation, axes of the mesh and ranks that take part",
    "size": "a payload has at least one byte",
    "producer": "every payload has producers, on ranks that take part",
    "consumer": "what waits for a payload exists, on ranks that take part",
    "value": "a value has one writer, and what is read exists",
    "layout": "a value lies on axes of the mesh, in whole blocks, and an operation turns one layout into another",
    "work": "what a task computes is known, or nothing is said of it",
    "wait": "who reads a value waits for whoever writes it, directly or through others",
    "cycle": "no task waits for itself within a step",
    "order": "the order of a class has every slot of every micro-batch once, and contradicts no edge",
    "policy": "the parts of a policy are known and fit each other",
    "queue": "keys, windows and gates name what exists",
    "sequence": "the ranks of a group issue the same operations in the same order",
}
_CHECKS: tuple[Callable[[Workload], Iterator[Finding]], ...] = (
    names,
    mesh,
    classes,
    tasks,
    resources,
    edges,
    payloads,
    policy,
    values,
)
# need names that exist
_LATER: tuple[Callable[[Workload], Iterator[Finding]], ...] = (cycles, waits, layouts, tokens, orders)


def check(workload: Workload, most: int = 20, *, warnings: bool = True) -> list[Finding]:
    """Return the broken rules of a workload, errors first, ``most`` of them at the most; none means legal."""
    findings: list[Finding] = []
    for part in _CHECKS:
        findings += _some(part(workload), most)
    for part in _LATER:
        if any(each.severity == "error" for each in findings):
            break
        findings += _some(part(workload), most)
    errors = [each for each in findings if each.severity == "error"]
    doubts = [each for each in findings if each.severity != "error"] if warnings else []
    return [*errors, *doubts][:most]


def require(workload: Workload) -> Workload:
    """Return the workload; raise WorkloadError naming the first broken rule, where, and what to do."""
    findings = check(workload, warnings=False)
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        first = findings[0]
        raise WorkloadError(
            f"{workload.name} is not legal: {first.rule}: {first.message}{more}", where=first.where, remedy=first.remedy
        )
    return workload


def _some(findings: Iterator[Finding], most: int) -> list[Finding]:
    """Return the first ``most`` errors and as many warnings: neither takes the room of the other."""
    kept: list[Finding] = []
    room = {True: most, False: most}
    for each in findings:
        is_error = each.severity == "error"
        if room[is_error] > 0:
            kept.append(each)
            room[is_error] -= 1
        if not room[True]:
            break
    return kept
