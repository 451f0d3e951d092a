"""The network of a fabric as a planner buys it: ports of one rate at the GPUs, and tiers of links behind them.

Ports are the links between a NIC and the network; where a fabric draws no NICs, those between a rank and the network. Every other
class of links between hosts is a tier. Its oversubscription is what all ports can send, over what its links away from the ranks
can carry; in a torus every link is a port, and there is no tier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.engines.packets.carriage import inside
from ringwright.ground.errors import UsageError
from ringwright.model.topology import NIC, SWITCH, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping

GBIT = 1e9 / 8  # bytes/s of one Gb/s
PORT_GBITS = (10, 25, 50, 100, 200, 400, 800, 1600)  # rates of ports on sale: IEEE 802.3 and the InfiniBand roadmap
RATIOS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # oversubscription that is planned with
ALIKE = 1e-3  # of a rate or a ratio: closer ones are the same


@dataclass(frozen=True)
class NetworkPlan:
    """A network of one fabric: ports over GPUs, a port's bytes/s, and the oversubscription of each tier, the nearest first."""

    nics_per_gpu: float
    nic_rate: float
    oversubscription: tuple[float, ...] = ()


@dataclass(frozen=True)
class Cabling:
    """Ports of NICs, ports of switches, and cables with an optic at each end."""

    nics: int
    switch_ports: int
    cables: int


class NetworkTiers:
    """The ports and tiers of a fabric, and the fabric with others; UsageError where it has no link between hosts."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.between = ~inside(topology)
        if not self.between.any():
            raise UsageError(
                f"{topology.name} has no NIC and no link between hosts: there is no network to size",
                remedy="a fabric of several hosts: --fabric dgx-h100:8",
            )
        named = (topology.kinds == NIC)[topology.src] & self.between
        self.draws_nics = bool(named.any())
        self._out = named if self.draws_nics else (topology.src < topology.n_ranks) & self.between
        if not self._out.any():
            raise UsageError(
                f"no rank of {topology.name} has a link to the network", remedy="ringwright list fabrics: one with NICs"
            )
        self._port_classes = np.unique(topology.link_class[self._out])
        self.tiers = tuple(topology.classes[each] for each in self._tier_classes())

    def _tier_classes(self) -> list[int]:
        """Return the classes of links between hosts that are no ports, those nearest to the ranks first."""
        top, levels = self.topology, self._levels
        behind = self.between & ~np.isin(top.link_class, self._port_classes)
        nearest = {
            int(each): int(np.minimum(levels[top.src], levels[top.dst])[behind & (top.link_class == each)].min())
            for each in np.unique(top.link_class[behind])
        }
        return sorted(nearest, key=lambda each: (nearest[each], each))

    @cached_property
    def _levels(self) -> np.ndarray:
        """Links from the nearest port's end to each node: int64 of shape (nodes,)."""
        top = self.topology
        levels = np.full(top.n_nodes, top.n_nodes, np.int64)
        levels[top.src[self._out]] = 0
        src, dst = top.src[self.between], top.dst[self.between]
        while True:
            before = levels.copy()
            np.minimum.at(levels, dst, before[src] + 1)
            if (levels == before).all():
                return levels

    @property
    def nics(self) -> int:
        """Ports of all GPUs."""
        return int(self._out.sum())

    @cached_property
    def given(self) -> NetworkPlan:
        """The network as the fabric has it; of ports of several rates the fastest."""
        top = self.topology
        rate = float(top.rate[self._out].max())
        return NetworkPlan(self.nics / top.n_ranks, rate, tuple(map(self._ratio, self.tiers)))

    def _ratio(self, tier: str) -> float:
        top, levels = self.topology, self._levels
        away = (top.link_class == top.classes.index(tier)) & (levels[top.dst] >= levels[top.src])
        return round(float(top.rate[self._out].sum() / top.rate[away].sum()), 6)

    @property
    def rails(self) -> int | None:
        """Switches that the ports of one host go to, the most of any host; None where no port goes to a switch."""
        top = self.topology
        ports = np.flatnonzero(self._out & (top.kinds[top.dst] == SWITCH))
        if not len(ports):
            return None
        host = [top.label(node).partition("/")[0] for node in top.src[ports].tolist()]
        joined: dict[str, set[int]] = {}
        for name, switch in zip(host, top.dst[ports].tolist(), strict=True):
            joined.setdefault(name, set()).add(switch)
        return max(map(len, joined.values()))

    @property
    def ports(self) -> np.ndarray:
        """The links by which ranks send into the network: int64 of shape (NICs,)."""
        return np.flatnonzero(self._out)

    def sized(self, plan: NetworkPlan) -> Topology:
        """Return the fabric with the ports and tiers of a plan: its links, at other rates. As it is where the plan is its own."""
        if plan == self.given:
            return self.topology
        ports = plan.nic_rate / self.given.nic_rate
        factors = {self.topology.classes[each]: ports for each in self._port_classes.tolist()}
        for name, ratio, own in zip(self.tiers, plan.oversubscription, self.given.oversubscription, strict=True):
            factors[name] = ports * own / ratio
        return self.scaled(factors)

    def scaled(self, factors: Mapping[str, float]) -> Topology:
        """Return the fabric with the rates of some classes of links multiplied.

        A capacity that only such links share grows with the one of them that grows most.
        """
        top = self.topology
        by_class = np.array([factors.get(name, 1.0) for name in top.classes])
        by_link = by_class[top.link_class]
        groups = tuple(replace(each, rate=each.rate * float(by_link[each.links].max())) for each in top.groups)
        return replace(top, rate=top.rate * by_link, groups=groups)

    def cabling(self, plan: NetworkPlan) -> Cabling:
        """Return what a network is built of, all of it at the rate of its ports."""
        each = [
            math.ceil(cables - ALIKE)
            for cables in (self.nics * self._port_share, *self._tier_cables(plan.oversubscription))
        ]
        at_ports = self.nics if self._port_share == 1 else 0
        return Cabling(self.nics, at_ports + 2 * sum(each[1:]), sum(each))

    def capacity_gbits(self, plan: NetworkPlan) -> float:
        """Return the size of a network: Gb/s of all its cables, each counted once."""
        cables = self.nics * self._port_share + sum(self._tier_cables(plan.oversubscription))
        return cables * plan.nic_rate / GBIT

    @cached_property
    def _port_share(self) -> float:
        """Cables for each port: a half where both ends are ports, as in a torus."""
        top, out = self.topology, self._out
        return 0.5 if bool(np.isin(top.dst[out], top.src[out]).any()) else 1.0

    def _tier_cables(self, ratios: tuple[float, ...]) -> list[float]:
        """Return the cables of each tier; one between switches of the same level is away from the ranks in both."""
        top, levels, cables = self.topology, self._levels, []
        for name, ratio in zip(self.tiers, ratios, strict=True):
            mine = top.link_class == top.classes.index(name)
            level = mine & (levels[top.dst] == levels[top.src])
            up = mine & (levels[top.dst] > levels[top.src])
            share = float((up.sum() + 0.5 * level.sum()) / (up.sum() + level.sum()))
            cables.append(self.nics / ratio * share)
        return cables

    def nic_rates(self) -> list[float]:
        """Return rates of ports from the given one downwards, bytes/s."""
        return [self.given.nic_rate, *_below(self.given.nic_rate, [each * GBIT for each in PORT_GBITS])]

    def more_nic_rates(self) -> list[float]:
        """Return rates of ports above the given one, upwards, bytes/s."""
        return [each * GBIT for each in PORT_GBITS if each * GBIT > self.given.nic_rate * (1 + ALIKE)]

    def ratios(self, tier: int) -> list[float]:
        """Return oversubscriptions of a tier from the given one upwards."""
        own = self.given.oversubscription[tier]
        return [own, *(each for each in RATIOS if each > own * (1 + ALIKE))]


def _below(own: float, rates: list[float]) -> list[float]:
    return [each for each in reversed(rates) if each < own * (1 - ALIKE)]
