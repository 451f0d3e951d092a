"""Programs in place of the library's: published and synthesised algorithms for an operation that is quicker by them alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringwright.advise.layers.mpi import chosen_settings
from ringwright.advise.layers.operations import MainOperation, on_known_machine, quicker, slot_of
from ringwright.advise.layers.replan import METHOD, replans, synthesised_by
from ringwright.advise.settings import Setting
from ringwright.errors import RingwrightError
from ringwright.registry import System, systems

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

KINDS = ("block", "published")
SYNTHESISED = (METHOD,)  # of those that look at links, the one that is quick to make
MOST_SYNTHESISED = 64  # ranks of an operation
RISK = "a program that the library does not ship: check it with verify, and measure it with bench"


def program_settings(
    situation: Situation, operations: list[MainOperation], refused: list[tuple[str, str, str]] | None = None
) -> list[Setting]:
    """Return, for each operation, the systems that make it quickest alone, the quickest first.

    ``refused`` is given the plans round the machine's faults that do not pay: what, why, and what to do.
    """
    on_known_machine(situation)
    if situation.mpi:
        return chosen_settings(situation, operations)
    anew = list(_anew(situation, operations, [] if refused is None else refused))
    planned = {each.slot for each in anew}
    listed = [one for each in operations for one in quickest(situation, each, _listed(each), "algorithm", RISK)]
    return [*anew, *(each for each in listed if each.slot not in planned or each.system not in SYNTHESISED)]


def _anew(
    situation: Situation, operations: list[MainOperation], refused: list[tuple[str, str, str]]
) -> Iterator[Setting]:
    """Yield a setting for each operation for which a new plan round the machine's faults pays; refuse the others."""
    for each, plan in replans(situation, operations):
        what = f"algorithm: {each.op} planned anew round the fault"
        if isinstance(plan, RingwrightError):
            refused.append((what, plan.what, plan.remedy or ""))
        elif not plan.pays:
            refused.append((what, plan.verdict, synthesised_by(situation, each)))
        else:
            yield Setting(
                "algorithm",
                slot_of(each),
                METHOD,
                f"{each.op} planned anew round the fault: {METHOD}",
                f"{synthesised_by(situation, each)} shows it: {plan.verdict}",
                RISK,
                size_bytes=each.size_bytes,
                ranks=each.ranks,
            )


def quickest(
    situation: Situation, operation: MainOperation, listed: list[System], layer: str, risk: str
) -> list[Setting]:
    """Return the settings of systems by which an operation is quicker alone than today, the quickest first."""
    where = f"a program for {operation.op} beside the library: MSCCL, MSCCL++"
    settings = [
        Setting(
            layer,
            slot_of(operation),
            system.slug,
            f"{operation.op} by {system.slug}",
            where,
            risk,
            size_bytes=operation.size_bytes,
            ranks=operation.ranks,
        )
        for system in listed
    ]
    return quicker(situation, operation, settings)


def _listed(operation: MainOperation) -> list[System]:
    known = [each for each in systems() if each.problem is None and operation.op in each.ops]
    return [
        each
        for each in known
        if each.kind in KINDS or (each.slug in SYNTHESISED and len(operation.ranks) <= MOST_SYNTHESISED)
    ]
