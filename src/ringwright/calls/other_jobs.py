"""What other jobs on the fabric repeat, as programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ringwright.calls import arguments
from ringwright.calls.library_calls import usual_algorithm
from ringwright.model.collective import Collective

if TYPE_CHECKING:
    from ringwright.fabrics._congestion import Congestion
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology


def programs(others: Iterable[Congestion], topology: Topology) -> list[Program]:
    """Return the program of each collective on a fabric, by the algorithm named or the usual one."""
    made = []
    for other in others:
        group = range(topology.n_ranks) if other.group is None else other.group
        collective = Collective(other.op, group, other.size_bytes)
        spelling = other.algorithm or usual_algorithm(collective, topology, None)
        made.append(arguments.algorithm(spelling)(collective, topology))
    return made
