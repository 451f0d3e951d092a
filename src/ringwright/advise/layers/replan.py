"""A machine with a fault: for each operation the program that was found for the healthy machine beside one found anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.errors import RingwrightError
from ringwright.studies.synthesis.question import SynthesisSpec
from ringwright.studies.synthesis.replan import spelled
from ringwright.studies.synthesis.study import synthesise

if TYPE_CHECKING:
    from ringwright.advise.layers.operations import MainOperation
    from ringwright.advise.situation import Situation
    from ringwright.studies.synthesis.replan import Replanned

METHOD = "forest"
MOST_RANKS = 64


def replans(
    situation: Situation, operations: list[MainOperation]
) -> Iterator[tuple[MainOperation, Replanned | RingwrightError]]:
    """Yield what a new plan saves of each operation, or why there is none; nothing where the machine has no fault."""
    machine = situation.topology
    if machine is None or not machine.faults:
        return
    healthy = replace(machine, faults=())
    for each in operations:
        if len(each.ranks) > MOST_RANKS:
            continue
        question = SynthesisSpec(each.op, machine, each.ranks, healthy=healthy)
        try:
            yield each, synthesise(question, [each.size_bytes], METHOD, rivals=False).faults[0]
        except RingwrightError as error:
            yield each, error


def synthesised_by(situation: Situation, operation: MainOperation) -> str:
    """Return the command that shows a plan beside the old one."""
    machine = situation.topology
    some = machine is not None and len(operation.ranks) < machine.n_ranks
    ranks = f" --ranks {spelled(operation.ranks)}" if some else ""
    asked = f"{situation.machine}{ranks} --size {operation.size_bytes} --method {METHOD} --alone"
    return f"ringwright synthesise {operation.op} {asked}"
