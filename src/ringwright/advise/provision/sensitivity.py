"""Which link buys how much: the step with each class of links a little faster, and a little slower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.advise.provision.network import NetworkTiers

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

CHANGE = 0.2  # of the rate of a class of links, both ways


@dataclass(frozen=True)
class ClassSensitivity:
    """By which share the step changes with ``links`` slower and faster by the share ``change``; below 0 it is shorter."""

    links: str
    change: float
    slower: float
    faster: float


def sensitivity(topology: Topology, step: float, step_s: Callable[[Topology], float]) -> list[ClassSensitivity]:
    """Return a row for each class of links, the one that matters most first; ``step`` is that of the network as it is, s."""
    tiers = NetworkTiers(topology)
    rows = []
    for name in topology.classes:
        slower = step_s(tiers.scaled({name: 1 - CHANGE})) / step - 1
        # Links that nothing waits for while they are slower, nothing waits for when they are faster.
        faster = step_s(tiers.scaled({name: 1 + CHANGE})) / step - 1 if slower else 0.0
        rows.append(ClassSensitivity(name, CHANGE, slower, faster))
    return sorted(rows, key=lambda each: (-each.slower, each.links))
