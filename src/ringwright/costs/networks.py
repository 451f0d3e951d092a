"""Ranks with several networks at once: each operation names the one that carries it, and none of them slows another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ringwright.ground.errors import UsageError
from ringwright.model.stages import Costs, NetworkedCosts, Stage, network_of

LINKS_APART = 1 << 32  # further than one machine has links: links of one network are none of another


@dataclass(frozen=True)
class NetworkCosts:
    """Costs by network, the usual one first, which carries what names none.

    What an operation loads on one network is told apart from what it loads on another.
    """

    of: Mapping[str, Costs]

    @property
    def networks(self) -> tuple[str, ...]:
        """The names of the networks, the usual one first."""
        return tuple(self.of)

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases of an operation on its network; UsageError for a network that is not there."""
        kind, network = network_of(op)
        network = network or self.networks[0]
        require_network(self, network, kind)
        at = self.networks.index(network)
        return tuple(
            replace(
                stage,
                loads=tuple((f"{network} {name}", share) for name, share in stage.loads),
                links=tuple((link + at * LINKS_APART, share) for link, share in stage.links),
            )
            for stage in self.of[network].stages(kind, size_bytes, ranks, role)
        )


def require_network(costs: Costs, network: str, where: str) -> None:
    """Raise UsageError where costs have no network of this name."""
    known = costs.networks if isinstance(costs, NetworkedCosts) else ()
    if network not in known:
        remedy = f"one of: {', '.join(known)}" if known else f"--network {network}=FABRIC, or ringwright.costs.networks"
        raise UsageError(f"there is no network '{network}'", where=where, remedy=remedy)
