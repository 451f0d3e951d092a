"""Ranks that are themselves the endpoints of a network, and what any machine with leaves and spines needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.fabrics._capabilities import adding
from ringwright.model.shortest_paths import UNREACHED
from ringwright.model.topology import RANK, SWITCH, Capability
from ringwright.model.wiring import Names, packed

if TYPE_CHECKING:
    import numpy as np

    from ringwright.fabrics._network import Clos, Network


@dataclass(frozen=True)
class EndpointPaths:
    """Routes of ranks through leaves and spines."""

    network: Clos

    def __call__(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route of each pair."""
        import numpy as np

        nodes = np.concatenate((src[:, None], self.network.between(src, dst), dst[:, None]), axis=1)
        nodes[src == dst, 1:] = UNREACHED
        return packed(nodes)


def switches_of(network: Clos, options: Network, n: int) -> tuple[np.ndarray, Names, dict[int, Capability]]:
    """Return kinds, names and aggregators of n ranks followed by the switches."""
    import numpy as np

    kinds = np.full(network.first + network.leaves + network.spines, SWITCH, np.uint8)
    kinds[:n] = RANK
    names = Names(("rank{}", (n,)), ("leaf{}", (network.leaves,)), ("spine{}", (network.spines,)))
    return kinds, names, aggregating(network, options)


def aggregating(network: Clos, options: Network) -> dict[int, Capability]:
    """Return the switches that add, where asked for."""
    last = network.first + network.leaves + network.spines
    able = adding(options.switches, sharp=options.sharp)
    return {} if able is None else dict.fromkeys(range(network.first, last), able)


def axes_of(network: Clos, plain: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Cut the last axis into those below one leaf and units of leaves, where the leaves are full."""
    *front, (name, size) = plain
    if network.units == 1 or size != network.units * network.per_leaf:
        return plain
    return (*front, (name, network.per_leaf), ("leaf" if network.rails == 1 else "unit", network.units))
