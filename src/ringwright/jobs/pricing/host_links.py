"""Which links are at which host, and where the links of one host are at another: hosts are alike, node by node.

Links and the capacities that several of them share are numbered as engines number them: links first.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.model.topology import Topology


class HostLinks:
    """Links and shared capacities of a machine whose ranks lie in hosts; what is in no host (a leaf switch) stays where it is."""

    def __init__(self, topology: Topology) -> None:
        assert topology.hosts is not None  # noqa: S101 - a machine without hosts has nothing to ask here
        named = {_host(topology, rank): int(host) for rank, host in enumerate(topology.hosts)}
        self.host = np.array([named.get(_host(topology, node), -1) for node in range(topology.n_nodes)], np.int64)
        hosts, inside = int(topology.hosts.max()) + 1, np.flatnonzero(self.host >= 0)
        inside = inside[np.argsort(self.host[inside], kind="stable")]
        counts = np.bincount(self.host[inside], minlength=hosts)
        self.turn = np.zeros(topology.n_nodes, np.int64)  # of a node among those of its host
        self.turn[inside] = np.arange(len(inside)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.node = np.full((hosts, int(counts.max(initial=1))), -1, np.int64)
        self.node[self.host[inside], self.turn[inside]] = inside
        self.src, self.dst, self.n = topology.src.astype(np.int64), topology.dst.astype(np.int64), topology.n_nodes
        keys = self.src * self.n + self.dst
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        self.shared = [np.sort(each.links) for each in topology.groups]

    def moved(self, resources: np.ndarray, by: int) -> np.ndarray:
        """Return the links and capacities that are ``by`` hosts further where these are, -1 where there is none.

        int64 of the shape of ``resources``.
        """
        if not by:
            return resources
        links = resources < len(self.src)
        there = np.full(resources.shape, -1, np.int64)
        there[links] = self._links_moved(resources[links], by)
        there[~links] = [self._capacity_moved(each, by) for each in resources[~links].tolist()]
        return there

    def touch(self, resources: np.ndarray, hosts: np.ndarray) -> np.ndarray:
        """Return which links have an end at one of the hosts, and which capacities such a link.

        bool of the shape of ``resources``.
        """
        at_host = np.isin(self.host[self.src], hosts) | np.isin(self.host[self.dst], hosts)
        shared = np.array([at_host[links].any() for links in self.shared], bool)
        touched: np.ndarray = np.concatenate((at_host, shared))[resources]
        return touched

    def _capacity_moved(self, capacity: int, by: int) -> int:
        """Return a capacity of one host at another; one that hosts share stays where it is."""
        links = self.shared[capacity - len(self.src)]
        hosts = np.unique(self.host[np.concatenate((self.src[links], self.dst[links]))])
        if (hosts >= 0).sum() != 1:
            return capacity
        there = self._links_moved(links, by)
        return self._capacity_of.get(tuple(sorted(there.tolist())), -1)

    @cached_property
    def _capacity_of(self) -> dict[tuple[int, ...], int]:
        """The number of a capacity by the links that share it."""
        return {tuple(links.tolist()): len(self.src) + at for at, links in enumerate(self.shared)}

    def _links_moved(self, links: np.ndarray, by: int) -> np.ndarray:
        keys = self._moved(self.src[links], by) * self.n + self._moved(self.dst[links], by)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.order[at], -1)

    def _moved(self, nodes: np.ndarray, by: int) -> np.ndarray:
        host = self.host[nodes] + by
        inside = (self.host[nodes] >= 0) & (host >= 0) & (host < len(self.node))
        there = self.node[np.where(inside, host, 0), self.turn[nodes]]
        return np.where(self.host[nodes] < 0, nodes, np.where(inside, there, -self.n))


def _host(topology: Topology, node: int) -> str:
    return topology.label(node).partition("/")[0]
