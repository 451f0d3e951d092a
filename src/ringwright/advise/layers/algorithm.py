"""Programs in place of the library's: published and synthesised algorithms for an operation that is quicker by them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.advise.layers.mpi import chosen_settings
from ringwright.advise.layers.operations import MainOperation, on_known_machine, quicker, slot_of
from ringwright.advise.settings import Setting
from ringwright.registry import System, systems

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

KINDS = ("block", "published")
SYNTHESISED = ("forest",)  # of those that look at links, the one that is quick to make
MOST_SYNTHESISED = 64  # ranks of an operation
RISK = "a program that the library does not ship: check it with verify, and measure it with bench"


def program_settings(situation: Situation, operations: list[MainOperation]) -> list[Setting]:
    """Return, for each operation, the systems that make it quickest alone, the quickest first."""
    on_known_machine(situation)
    if situation.mpi:
        return chosen_settings(situation, operations)
    return [setting for each in operations for setting in quickest(situation, each, _listed(each), "algorithm", RISK)]


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
