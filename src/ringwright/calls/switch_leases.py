"""What a program leases of the switches that add: how its packets go through them, and the memory that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.algorithms.switch_trees import network_switches
from ringwright.model.streams import granted, payload_bytes

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class StreamAsUsed:
    """Packets under way of one stream, its number format and who mends a loss: the fewest slots that any switch grants."""

    slots: int
    codec: str
    loss: str


def in_switches(program: Program, topology: Topology) -> tuple[StreamAsUsed | None, int | None]:
    """Return the stream of a program with the fewest slots, and the bytes it leases of the switch that lends the most.

    Switches between hosts count, or those inside hosts where it uses no others. None twice where ranks alone add.
    """
    between = network_switches(topology).intersection(program.aggregators)
    leased: list[int] = []
    used: list[StreamAsUsed] = []
    for node in between or program.aggregators:
        here, able = [each for each in program.streams if each.node == node], topology.aggregators[node]
        slots = granted(here, able)
        sizes = (count * each.versions * payload_bytes(each, able) for each, count in zip(here, slots, strict=True))
        leased.append(sum(sizes))
        used += [StreamAsUsed(count, each.codec, each.loss) for each, count in zip(here, slots, strict=True)]
    if not used:
        return None, None
    return min(used, key=lambda each: each.slots), max(leased)
