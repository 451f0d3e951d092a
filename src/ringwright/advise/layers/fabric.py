"""Links and switches that one would have to buy: each class of links at twice its rate, and switches that add."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.advise.layers.operations import on_known_machine
from ringwright.advise.machines import FASTER, NAMED
from ringwright.advise.provision.variants import is_spelled
from ringwright.advise.settings import MACHINE, Setting
from ringwright.fabrics import families, knobs
from ringwright.ground.errors import UsageError
from ringwright.jobs.switch_gains import switches_add

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation
    from ringwright.model.topology import Topology

TIMES = 2
ADDS = "sharp"
RISK = "costs money: ringwright provision says how little network keeps the step"


def bought_settings(situation: Situation) -> list[Setting]:
    """Return one setting a class of links, and one of switches that add where the family has them."""
    on_known_machine(situation)
    topology = situation.topology
    if topology is None or topology.n_ranks < 2:
        raise UsageError("a machine of one rank has no links", remedy="--fabric dgx-h100:2")
    settings = [
        Setting("fabric", MACHINE, f"{FASTER}{name} x{TIMES}", f"{name} links twice as fast", "the machine", RISK)
        for name in topology.classes
    ]
    named = _that_adds(topology)
    return settings + (
        [Setting("fabric", MACHINE, f"{NAMED}{named}", "switches that add", "the machine", RISK)] if named else []
    )


def _that_adds(topology: Topology) -> str:
    """Return the spelling of the same fabric with switches that add; empty where there is none."""
    family = topology.name.partition(":")[0]
    if family not in families() or ADDS not in knobs(family) or switches_add(topology) or not is_spelled(topology):
        return ""
    return f"{topology.name},{ADDS}=true"
