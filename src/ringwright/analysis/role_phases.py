"""What a communicator is for, by what it carries in which phase of a step: surer than which ranks are in it.

Gradients are there in the backward pass only, parts of results in both: what is summed backward alone is data parallel, what is
summed forward too is tensor parallel; parameters that are gathered forward, and gradients scattered backward, are sharded data
parallelism. Bytes decide, so that a loss which is summed for a log changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.analysis.roles import Roles, complete
from ringwright.ground.trace_tables import Row

if TYPE_CHECKING:
    import polars as pl

FORWARD, BACKWARD = "forward", "backward"
LIKELY, SURE = 0.8, 0.9
_MOST = 0.5  # share of the bytes of a step that must tell of a role
_BOTH = 0.25  # share of what is summed that lies in the forward pass where results are
_STRUCTURAL = ("world", "tp", "dp")  # what only members told

Work = Mapping[tuple[str, str], int]  # bytes by phase and operation


def work_of(logical: pl.DataFrame) -> dict[int, Work]:
    """Return the bytes of each communicator by phase and operation; an operation of unknown size leaves its communicator out."""
    work: dict[int, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    unknown = set()
    columns = logical.select("communicator", "phase", "op", "size_bytes", "operations").rows()
    for communicator, phase, op, size, count in columns:
        if communicator is None or phase not in (FORWARD, BACKWARD):
            continue
        if size is None:
            unknown.add(communicator)
        else:
            work[communicator][phase, op] += size * count
    return {number: told for number, told in work.items() if number not in unknown}


def told_by(work: Work) -> tuple[str, str, float] | None:
    """Return the role that bytes by phase tell of, the evidence and how sure that is; None where they tell of none.

    >>> told_by({("backward", "all-reduce"): 100, ("forward", "all-reduce"): 4})
    ('dp', 'gradients are summed in the backward pass', 0.9)
    """
    total = sum(work.values())

    def share(*ops: str, phase: str = "") -> float:
        return sum(size for (when, op), size in work.items() if op in ops and phase in ("", when)) / total

    if not total:
        return None
    if share("send", "recv", "send-recv") > _MOST:
        return "pp", "messages between stages", SURE
    if share("all-gather", "reduce-scatter") > _MOST:
        if share("reduce-scatter", phase=FORWARD) > 0:
            return "tp", "parts of results are gathered and scattered in the forward pass, too", LIKELY
        if share("all-gather", phase=FORWARD) > 0 and share("reduce-scatter", phase=BACKWARD) > 0:
            return "dp", "parameters are gathered, gradients scattered: sharded", SURE
    summed = share("all-reduce", "reduce")
    if summed > _MOST:
        ahead = share("all-reduce", "reduce", phase=FORWARD) / summed
        if ahead >= _BOTH:
            return "tp", "parts of results are summed in the forward pass, too", LIKELY
        if ahead < 1 - SURE:
            return "dp", "gradients are summed in the backward pass", SURE
    return None


def with_phases(roles: Roles, communicators: list[Row], logical: pl.DataFrame, world: int | None) -> Roles:
    """Return roles with those that phases tell of, in place of what members alone told."""
    sizes = {row["communicator"]: row["size"] for row in communicators if row["size"]}
    told = {
        number: found
        for number, work in work_of(logical).items()
        if sizes.get(number, 0) > 1
        and roles.of.get(number, ("world",))[0] in _STRUCTURAL
        and (found := told_by(work)) is not None
    }
    if not told:
        return roles
    of = {**roles.of, **{number: (role, f"{why}; confidence {sure}") for number, (role, why, sure) in told.items()}}
    named = {number: role for number, (role, _) in of.items() if sizes.get(number, 0) > 1}
    widths = {role: max(sizes[number] for number in named if named[number] == role) for role in named.values()}
    tp, pp, dp = (widths.get(name) or roles.degrees[name] for name in ("tp", "pp", "dp"))
    if world and len(named) == sum(size > 1 for size in sizes.values()) and set(named.values()) <= {"dp", "world"}:
        dp = world  # replicas of shards, too
    if world in (tp, pp, dp):  # one of them is all that there is
        tp, pp, dp = (each if each == world else 1 for each in (tp, pp, dp))
    elif world:
        tp, pp, dp = complete(tp, pp, dp, world)
    sure = {number: confidence for number, (_, _, confidence) in told.items()}
    return replace(roles, of=of, degrees={**roles.degrees, "tp": tp, "pp": pp, "dp": dp}, confidence=sure)
