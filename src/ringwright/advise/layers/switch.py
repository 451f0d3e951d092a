"""Sums in the network: systems whose switches add, where the machine has such switches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.advise.layers.algorithm import by_system
from ringwright.advise.layers.operations import MOST_SYSTEMS, LeftOut, MainOperation, on_known_machine, quickest, timed
from ringwright.ground.errors import UsageError
from ringwright.jobs.switch_gains import switches_add
from ringwright.model.registry import systems

if TYPE_CHECKING:
    from ringwright.advise.settings import Setting
    from ringwright.advise.situation import Situation

FAMILY = "in-network-aggregation"
RISK = "memory and leases of the switches are shared with other jobs; the order of adding may change the last bits"


def switch_settings(situation: Situation, operations: list[MainOperation], left: LeftOut) -> list[Setting]:
    """Return, for each operation, the systems that add in the network and are quicker; UsageError where no switch adds."""
    on_known_machine(situation)
    topology = situation.topology
    if topology is None or not switches_add(topology):
        name = topology.name if topology is not None else "the machine"
        raise UsageError(f"no switch of {name} adds", remedy="--may fabric says what such switches would gain")
    known = [each for each in systems() if each.problem is None and each.family == FAMILY]
    asked = [
        (each, by_system(each, system, "switch", RISK))
        for each in operations
        for system in known
        if each.op in system.ops
    ]
    return quickest(operations, timed(situation, asked, left), MOST_SYSTEMS)
