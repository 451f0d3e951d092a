"""A machine with a fault: for each operation the program that was found for the healthy machine beside one found anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.algorithms.searching import in_time
from ringwright.ground.errors import RingwrightError
from ringwright.search.question import SynthesisSpec
from ringwright.search.replan import spelled
from ringwright.search.study import synthesise

if TYPE_CHECKING:
    from ringwright.advise.layers.operations import MainOperation
    from ringwright.advise.situation import Situation
    from ringwright.model.topology import Topology
    from ringwright.search.replan import Replanned

METHOD = "forest"
MOST_REPLANNED = 64  # ranks of an operation


def replan(machine: Topology, operation: MainOperation) -> Replanned:
    """Return what a new plan saves of an operation on a faulty machine; RingwrightError where there is none.

    Raises OutOfTimeError where the seconds of its block ended one of both searches.
    """
    question = SynthesisSpec(operation.op, machine, operation.ranks, healthy=replace(machine, faults=()))
    in_time()
    try:
        answer = synthesise(question, [operation.size_bytes], METHOD, rivals=False)
    except RingwrightError:
        in_time()
        raise
    in_time()
    return answer.faults[0]


def synthesised_by(situation: Situation, operation: MainOperation) -> str:
    """Return the command that shows a plan beside the old one."""
    machine = situation.topology
    some = machine is not None and len(operation.ranks) < machine.n_ranks
    ranks = f" --ranks {spelled(operation.ranks)}" if some else ""
    asked = f"{situation.machine}{ranks} --size {operation.size_bytes} --method {METHOD} --alone"
    return f"ringwright synthesise {operation.op} {asked}"
