"""What makes a Program legal: a table of rules, each of which names the rank, step and chunk where it is broken.

Data are followed as fingerprints: each rank's contribution to each chunk is a random 64-bit number, sums are sums, and a
result is right if it is the sum of exactly the right contributions (a wrong one passes once in 2**64). What fails is
followed again contribution by contribution, to say which one is missing or counted twice.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ringwright.ground.errors import InfeasibleError, ProgramError
from ringwright.model.threadblocks import Schedule
from ringwright.model.validity.declared import check_order, located
from ringwright.model.validity.follow import ProgramFollower, placed, unfold
from ringwright.model.validity.rules import RULES, Violation
from ringwright.model.validity.stream_rules import check_streams
from ringwright.model.validity.trace import trace

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

__all__ = ["RULES", "Violation", "check", "placed", "require", "unfold"]
MOST_STATE = 1 << 27
_NO_MOVES = ("range", "self", "aggregator")  # after these, who moves what is not known


def require(program: Program) -> Program:
    """Return the program; raise ProgramError naming the first broken rule."""
    violations = check(program)
    if violations:
        more = f" and {len(violations) - 1} more" if len(violations) > 1 else ""
        first = violations[0]
        where = ", ".join(f"{name} {number}" for name, number in first.place() if number >= 0)
        raise ProgramError(f"{program.name} is not legal: {first.rule}: {first.message}{more}", where=where)
    return program


def check(
    program: Program, most: int = 20, *, warnings: bool = False, topology: Topology | None = None
) -> list[Violation]:
    """Return the broken rules of a program, ``most`` of them at the most; an empty list means legal.

    With ``warnings`` also what is doubtful in a declared order. A declared order that cannot run, or leaves open
    what it does, is not followed further. Its streams are held to what the nodes of ``topology`` can do, where one is given.
    """
    state_size = program.n_nodes * program.layout.slots
    if state_size > MOST_STATE:
        raise InfeasibleError(
            f"{program.name} on {program.p} ranks has {state_size:,} slots; at most {MOST_STATE:,} can be checked",
            remedy="check the same algorithm on fewer ranks",
        )
    doubts: list[Violation] = []
    if isinstance(program.schedule, Schedule):
        order = check_order(program.schedule, most)
        doubts = [each for each in order if each.severity != "error"] if warnings else []
        violations = [each for each in order if each.severity == "error"]
        if not violations:
            violations = [located(program.schedule, each) for each in _follow(program, most)]
    else:
        violations = _follow(program, most)
    if not any(each.rule in _NO_MOVES for each in violations):
        violations += check_streams(program, topology)
    return [*violations, *doubts][:most]


def _follow(program: Program, most: int) -> list[Violation]:
    violations = ProgramFollower(program, most).follow()
    if program.collective.reduces and (violations or not program.collective.commutative):
        written = {(each.rule, each.rank, each.chunk): each.step for each in violations}
        traced = [_dated(each, written) for each in trace(program, most)]
        violations = [each for each in violations if each.rule != "result"] + traced if traced else violations
    return violations


def _dated(violation: Violation, written: dict[tuple[str, int, int], int]) -> Violation:
    """Return a wrong result with the step that last wrote it, where that is known."""
    step = written.get((violation.rule, violation.rank, violation.chunk), -1)
    return dataclasses.replace(violation, step=step) if violation.step < 0 else violation
