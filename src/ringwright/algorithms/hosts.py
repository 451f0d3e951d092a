"""Which places of a group share a host: what every algorithm with two levels starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.collective import Collective
    from ringwright.topology import Topology


def by_host(collective: Collective, topology: Topology | None) -> list[list[int]]:
    """Return the places of the group host by host, in the order of each host's first; without hosts all are on one."""
    if topology is None or topology.hosts is None:
        return [list(range(collective.p))]
    found: dict[int, list[int]] = {}
    for place, rank in enumerate(collective.group):
        found.setdefault(int(topology.hosts[rank]), []).append(place)
    return list(found.values())


def is_regular(hosts: list[list[int]]) -> bool:
    """Whether every host has the same number of places, numbered host by host."""
    flat = [place for host in hosts for place in host]
    return flat == list(range(len(flat))) and len({len(host) for host in hosts}) == 1
