"""Programs in place of the library's: published and synthesised algorithms for an operation that is quicker by them alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.advise.layers.mpi import chosen_settings
from ringwright.advise.layers.operations import (
    MOST_SYSTEMS,
    LeftOut,
    MainOperation,
    on_known_machine,
    quickest,
    slot_of,
    timed,
)
from ringwright.advise.layers.replan import METHOD, MOST_REPLANNED, replan, synthesised_by
from ringwright.advise.settings import Setting
from ringwright.algorithms.searching import OutOfTimeError
from ringwright.ground.errors import RingwrightError
from ringwright.model.registry import System, systems

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

KINDS = ("block", "published")
SYNTHESISED = (METHOD,)  # of those that look at links, the one that is quick to make
MOST_SYNTHESISED = 64  # ranks of an operation
RISK = "a program that the library does not ship: check it with verify, and measure it with bench"


def program_settings(situation: Situation, operations: list[MainOperation], left: LeftOut) -> list[Setting]:
    """Return, for each operation, the systems that make it quickest alone, the quickest first.

    What is searched for comes last, should seconds end. ``left`` is given the plans round the machine's faults that do not pay.
    """
    on_known_machine(situation)
    if situation.mpi:
        return chosen_settings(situation, operations, left)
    asked = [(each, by_system(each, system, "algorithm", RISK)) for each in operations for system in _listed(each)]
    within = timed(situation, [one for one in asked if one[1].system not in SYNTHESISED], left)
    anew = list(_anew(situation, operations, left))
    planned = {each.slot for each in anew}
    searched = [one for one in asked if one[1].system in SYNTHESISED and one[1].slot not in planned]
    return [*anew, *quickest(operations, [*within, *timed(situation, searched, left)], MOST_SYSTEMS)]


def _anew(situation: Situation, operations: list[MainOperation], left: LeftOut) -> Iterator[Setting]:
    """Yield a setting for each operation for which a new plan round the machine's faults pays; refuse the others."""
    machine = situation.topology
    if machine is None or not machine.faults:
        return
    for each in operations:
        if len(each.ranks) > MOST_REPLANNED:
            continue
        what = f"{each.op} planned anew round the fault"
        try:
            plan = replan(machine, each)
        except OutOfTimeError:
            left.late.append(what)
        except RingwrightError as error:
            left.refused.append((f"algorithm: {what}", error.what, error.remedy or ""))
        else:
            if not plan.pays:
                left.refused.append((f"algorithm: {what}", plan.verdict, synthesised_by(situation, each)))
                continue
            yield Setting(
                "algorithm",
                slot_of(each),
                METHOD,
                f"{what}: {METHOD}",
                f"{synthesised_by(situation, each)} shows it: {plan.verdict}",
                RISK,
                size_bytes=each.size_bytes,
                ranks=each.ranks,
            )


def by_system(operation: MainOperation, system: System, layer: str, risk: str) -> Setting:
    """Return that a system does an operation."""
    return Setting(
        layer,
        slot_of(operation),
        system.slug,
        f"{operation.op} by {system.slug}",
        f"a program for {operation.op} beside the library: MSCCL, MSCCL++",
        risk,
        size_bytes=operation.size_bytes,
        ranks=operation.ranks,
    )


def _listed(operation: MainOperation) -> list[System]:
    known = [each for each in systems() if each.problem is None and operation.op in each.ops]
    return [
        each
        for each in known
        if each.kind in KINDS or (each.slug in SYNTHESISED and len(operation.ranks) <= MOST_SYNTHESISED)
    ]
