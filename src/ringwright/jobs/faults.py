"""The effect of a fabric's faults on a job: slow ranks, and ranks whose links differ from all others."""

from __future__ import annotations

from collections.abc import Iterable

from ringwright.model.topology import Topology


def slowdowns(topology: Topology) -> dict[int, float]:
    """Return rank -> factor on its compute time, from the faults that slow ranks from the start."""
    return {
        fault.target: 1.0 / fault.value
        for fault in topology.faults
        if fault.kind == "rank" and fault.field == "compute_factor" and fault.time_s <= 0 and fault.value > 0
    }


def marked(topology: Topology, ranks: int, passing: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the ranks of the hosts whose links have faults; all ranks where the link belongs to no host.

    ``passing``: more such links, of outages that come and go.
    """
    links = {fault.target for fault in topology.faults if fault.kind == "link"} | {*passing}
    if not links:
        return ()
    hosts: dict[str, list[int]] = {}
    for rank in range(ranks):
        hosts.setdefault(_host(topology, rank), []).append(rank)
    marked_ranks: dict[int, None] = {}
    for link in links:
        ends = [_host(topology, int(node[link])) for node in (topology.src, topology.dst)]
        mine = [rank for end in ends for rank in hosts.get(end, ())]
        if not mine:
            return tuple(range(ranks))
        marked_ranks |= dict.fromkeys(mine)
    return tuple(marked_ranks)


def _host(topology: Topology, node: int) -> str:
    return topology.label(node).partition("/")[0]
