"""Which ranks of a group share a host, and how the group lies on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology


def members(
    collective: Collective, topology: Topology | None, hosts: Sequence[int] | None = None
) -> list[list[int]] | None:
    """Return the places in the group by host, hosts in the order of their first member; None where hosts are unknown.

    ``hosts`` gives the host of each place; without it the topology does.
    """
    if hosts is None:
        if topology is None or topology.hosts is None:
            return None
        hosts = [int(topology.hosts[rank]) for rank in collective.group]
    if len(hosts) != collective.p:
        raise UsageError(f"{len(hosts)} hosts for {collective.p} ranks", remedy="name the host of every rank")
    by_node: dict[int, list[int]] = {}
    for index, host in enumerate(hosts):
        by_node.setdefault(host, []).append(index)
    return list(by_node.values())


def distribution(nodes: Sequence[Sequence[int]] | None) -> str:
    """Return ``single-node``, ``one-per-node`` or, for anything else, ``any``."""
    if nodes is not None and len(nodes) == 1:
        return "single-node"
    if nodes is not None and all(len(node) == 1 for node in nodes):
        return "one-per-node"
    return "any"


def is_hierarchical(nodes: Sequence[Sequence[int]] | None) -> bool:
    """Return whether there are several hosts and several ranks on one of them."""
    return nodes is not None and len(nodes) > 1 and max(len(node) for node in nodes) > 1


def is_consecutive(nodes: Sequence[Sequence[int]]) -> bool:
    """Return whether the places run host by host."""
    return [index for node in nodes for index in node] == list(range(sum(len(node) for node in nodes)))


def by_host(collective: Collective, topology: Topology | None) -> list[list[int]]:
    """Return the places by host; all on one where hosts are unknown."""
    return members(collective, topology) or [list(range(collective.p))]


def by_domain(collective: Collective, topology: Topology | None) -> list[list[int]]:
    """Return the places by NVLink domain, which is a host or all hosts that NVLinks join; all in one where hosts are unknown."""
    if topology is None or topology.domains is None:
        return by_host(collective, topology)
    return members(collective, topology, [int(topology.domains[rank]) for rank in collective.group]) or []


def is_regular(nodes: Sequence[Sequence[int]]) -> bool:
    """Return whether every host has as many places, numbered host by host."""
    return is_consecutive(nodes) and len({len(node) for node in nodes}) == 1
