"""A machine as edges between ranks and limits on what they carry in a round.

A *round* is the time in which the slowest link carries one chunk. A *limit* says that a set of edges carries at most so
many chunks a round: a link alone, or what several pairs of ranks share (a port of a switch, a PCIe switch, a NIC).
Source: Cai et al., Synthesizing Optimal Collective Algorithms, PPoPP 2021 (bandwidth constraints).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import goodput
from ringwright.ground.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.bounds.cheapest_trees import Price
    from ringwright.model.topology import Topology

WHOLE = 1e-6  # by how much a rate may fall short of a whole multiple of the slowest


@dataclass(frozen=True)
class RoundLimit:
    """At most ``chunks`` a round cross ``edges`` in all (an edge that is named twice counts twice)."""

    edges: tuple[int, ...]
    chunks: int


@dataclass(frozen=True)
class UnitLinks:
    """Edges between ``p`` ranks, and the limits on them. ``unit_rate`` is bytes/s of one chunk a round."""

    p: int
    edges: tuple[tuple[int, int], ...]
    limits: tuple[RoundLimit, ...]
    unit_rate: float = 1.0

    @cached_property
    def turned(self) -> UnitLinks:
        """The same with every edge the other way round, in the order of the edges: equal where both ways are alike."""
        ends = sorted((there, here, edge) for edge, (here, there) in enumerate(self.edges))
        number = {edge: at for at, (_, _, edge) in enumerate(ends)}
        limits = ((tuple(sorted(number[edge] for edge in limit.edges)), limit.chunks) for limit in self.limits)
        turned = tuple(RoundLimit(edges, chunks) for edges, chunks in sorted(limits))
        return UnitLinks(self.p, tuple((here, there) for here, there, _ in ends), turned, self.unit_rate)

    @cached_property
    def hops(self) -> tuple[tuple[float, ...], ...]:
        """Edges on the shortest route from each rank to each; inf where there is none."""
        leaving: list[list[int]] = [[] for _ in range(self.p)]
        for here, there in self.edges:
            leaving[here].append(there)
        return tuple(tuple(_hops(self.p, root, leaving)) for root in range(self.p))

    def lengths(self, prices: Sequence[Price]) -> list[Price]:
        """Return what a chunk pays on each edge."""
        paid: list[Price] = [0] * len(self.edges)
        for limit, price in zip(self.limits, prices, strict=True):
            for edge in limit.edges:
                paid[edge] += price
        return paid


def _hops(p: int, root: int, leaving: list[list[int]]) -> list[float]:
    far = [float("inf")] * p
    far[root], front = 0, deque([root])
    while front:
        node = front.popleft()
        for there in leaving[node]:
            if far[there] == float("inf"):
                far[there] = far[node] + 1
                front.append(there)
    return far


# ------------------------------------------------------------------------------------------------------- of a topology
def wires_of(topology: Topology | None, group: Sequence[int]) -> UnitLinks:
    """Return the edges and limits between the ranks of a group, as the machine is at the start; None: a link for each pair.

    An edge joins two ranks whose route passes no third one. Rates count in whole multiples of the slowest.
    """
    import numpy as np

    p = len(group)
    pairs = [(here, there) for here in range(p) for there in range(p) if here != there]
    if topology is None:
        return UnitLinks(p, tuple(pairs), tuple(RoundLimit((edge,), 1) for edge in range(len(pairs))))
    if max(group) >= topology.n_ranks:
        raise UsageError(f"{topology.name} has no rank {max(group)}", remedy=f"0 to {topology.n_ranks - 1}")
    now = topology.at(0.0) if topology.faults else topology
    rate = goodput(now)
    inside = np.zeros(now.n_nodes, bool)
    inside[list(group)] = True
    kept, crossed = [], []
    for pair, links in zip(pairs, _routes(now, group, pairs), strict=True):
        if len(links) and (rate[links] > 0).all() and not inside[now.dst[links[:-1]]].any():
            kept.append(pair)
            crossed.append(links.tolist())
    return _limited(now, p, kept, crossed, rate)


def _routes(topology: Topology, group: Sequence[int], pairs: list[tuple[int, int]]) -> list[np.ndarray]:
    """Return the links of each pair's route; none for a pair without one."""
    import numpy as np

    ends = np.array([(group[here], group[there]) for here, there in pairs], np.int64).reshape(-1, 2)
    try:
        starts, links = topology.routes(ends[:, 0], ends[:, 1])
        return np.split(links, starts[1:-1]) if len(pairs) else []
    except InfeasibleError:
        pass
    routes = []
    for here, there in ends:
        try:
            routes.append(topology.routes(np.array([here]), np.array([there]))[1])
        except InfeasibleError:
            routes.append(np.zeros(0, np.int64))
    return routes


def _limited(
    topology: Topology, p: int, edges: list[tuple[int, int]], crossed: list[list[int]], rate: np.ndarray
) -> UnitLinks:
    users: dict[tuple[str, int], list[int]] = {}
    starts, groups = topology.memberships
    for edge, links in enumerate(crossed):
        for link in links:
            users.setdefault(("link", link), []).append(edge)
            for group in groups[starts[link] : starts[link + 1]].tolist():
                users.setdefault(("group", group), []).append(edge)
    if not users:
        return UnitLinks(p, (), ())
    rates = {
        key: float(rate[key[1]]) if key[0] == "link" else float(topology.groups[key[1]].rate) for key in sorted(users)
    }
    unit = min(rates.values())
    least: dict[tuple[int, ...], int] = {}
    for key, speed in rates.items():
        chunks, named = int(min(speed / unit + WHOLE, 1e6)), tuple(sorted(users[key]))
        least[named] = min(chunks, least.get(named, chunks))
    return UnitLinks(p, tuple(edges), tuple(RoundLimit(named, chunks) for named, chunks in sorted(least.items())), unit)
