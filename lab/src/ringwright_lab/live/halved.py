"""A policy whose rules split sums in halves, as real ranks carry it out: which parameters a bucket holds, which gather completes
which scatter, and which layer of the next forward pass lets a gather go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites import Operation
from ringwright.model.workload import Payload, Workload

SCATTER, GATHER = "reduce-scatter", "all-gather"
CARRIED = ("fuse", "split-all-reduce", "next-step", "hold")  # rules that change when sums are sent, and nothing else


@dataclass(frozen=True)
class HeldGather:
    """The second half of a sum: the number of its first half, and the place in forward of the layer that lets it go (0: none)."""

    scatter: int
    opened_by: int = 0


def refuse(workload: Workload) -> None:
    """Raise UsageError for a rule that no hook of PyTorch carries out, or a rewrite of halves."""
    for each in workload.applied:
        if each.rule not in CARRIED:
            raise UsageError(
                f"live ranks cannot carry out the rule '{each.rule}' at {each.at}: it changes what is computed where, which "
                "the program of the model and its optimiser fix",
                where=f"policy {workload.policy.label}",
                remedy=f"a policy of these rules only: {', '.join(CARRIED)}",
            )
    for rewrite in workload.policy.rewrites or ():
        if any(each.role in rewrite.roles for each in workload.payloads if each.op in (SCATTER, GATHER)):
            raise UsageError(
                f"halves of sums travel as they are, without rewrite '{rewrite.kind}'",
                where=f"policy {workload.policy.label}",
                remedy="that scheduler alone, or compose with one that splits no sum",
            )


def with_members(operations: Sequence[Operation], workload: Workload, drawn: Workload) -> tuple[Operation, ...]:
    """Return the operations with the payloads of ``drawn``, the step before its rules, in place of what rules made of them."""
    fused = {each.at: [each.at, *each.settings["others"]] for each in workload.applied if each.rule == "fuse"}
    inside: dict[str, tuple[Payload, ...]] = {}
    for name in drawn.payload:
        bucket = f"{name}.fused" if name in fused else name
        members = tuple(drawn.payload[each] for each in fused.get(name, [name]))
        inside |= {bucket: members, f"{bucket}.scatter": members, f"{bucket}.gather": members}
    return tuple(
        replace(each, payloads=tuple(one for payload in each.payloads for one in inside.get(payload.name, (payload,))))
        for each in operations
    )


def gathers(operations: Sequence[Operation], workload: Workload) -> dict[int, HeldGather]:
    """Return the second halves among operations by their numbers."""
    number = {each.name: at for at, each in enumerate(operations)}
    line = {task: at for each in workload.classes for at, (task, _) in enumerate(workload.line(each.name))}
    behind: dict[str, int] = {}
    for each in workload.applied:
        if each.rule == "hold":
            reached = [line[name] + 1 for name in each.settings["behind"] if name in line]
            behind[each.at] = max([behind.get(each.at, 0), *reached])
    halves = {
        at: number.get(f"{each.name.removesuffix('.gather')}.scatter")
        for at, each in enumerate(operations)
        if each.op == GATHER
    }
    scatters = {at for at, each in enumerate(operations) if each.op == SCATTER}
    if set(halves.values()) != scatters:
        raise UsageError(
            "what is scattered in a step is not what is gathered",
            where=f"policy {workload.policy.label}",
            remedy="live ranks hold whole parameters: a policy that splits their sums itself",
        )
    return {
        at: HeldGather(first, behind.get(operations[at].name, 0)) for at, first in halves.items() if first is not None
    }


def first_needed(drawn: Workload) -> Mapping[str, int]:
    """Return, by parameter, the place in forward of the layer that is the first to need it."""
    line = {task: at for each in drawn.classes for at, (task, _) in enumerate(drawn.line(each.name))}
    readers = {edge.src: line[edge.dst] for edge in drawn.edges if edge.dst in line and edge.distance}
    return {each.name: min((readers.get(name, 0) for name, _ in each.consumers), default=0) for each in drawn.payloads}
