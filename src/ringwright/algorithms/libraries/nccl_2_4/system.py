"""A fabric as NCCL's model sees it: the node it is made of, or one estimated from the fabric's links."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.libraries.nccl_2_4.orders import DIRECT, link_widths, matrix
from ringwright.algorithms.placement import by_domain, by_host
from ringwright.algorithms.switch_trees import network_switches, switch_trees
from ringwright.costs.nccl import NODE_TYPES, NcclSystem, NodeType, named_system, nvls_channels, search
from ringwright.costs.nccl.ring_search import smallest_cut
from ringwright.ground.errors import UsageError
from ringwright.model.topology import NIC

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

NAME = "nccl-2-4"
NVLINK_GBS = 20.0  # one link of the estimated box
SPELLINGS = {"dgx-1": "dgx1", "dgx-2": "dgx2", "hgx-h100": "dgx-h100", "dgx-a100": "dgx-a100"}


def system_of(collective: Collective, topology: Topology | None) -> NcclSystem:
    """Return the system of a group as NCCL sees it: its node is an NVLink domain, be that a host or a rack of hosts."""
    nodes = by_domain(collective, topology)
    name = _known(topology, nodes)
    network = network_switches(topology)
    # NCCL offers the network what its plug-in says that the switches add.
    adds = topology is not None and any(collective.dtype in topology.aggregators[node].dtypes for node in network)
    adds = adds and (len(nodes) < 2 or _is_joined(collective, topology, nodes))
    if name:
        mnnvl = len(by_host(collective, topology)) > len(nodes)
        kind = _drawn(name, -(-collective.p // len(nodes)), topology)
        system = _of_domains(name, len(nodes), collective.p, kind, mnnvl=mnnvl, collnet=adds)
    else:
        system = _estimated(topology, nodes, collnet=adds)
    nvls = system.nvls and topology is not None and len(topology.aggregators) > len(network)
    heads = system.graphs.collnet_direct.channels
    return dataclasses.replace(system, nvls=nvls, collnet=adds and system.nodes > 1, collnet_heads=heads)


def _is_joined(collective: Collective, topology: Topology | None, nodes: list[list[int]]) -> bool:
    """Return whether a tree of the network's switches joins the nodes: NCCL goes without CollNet where there is none."""
    try:
        switch_trees(NAME, collective, topology, [[node[0] for node in nodes]])
    except UsageError:
        return False
    return True


def node_type(collective: Collective, topology: Topology | None) -> NodeType | None:
    """Return the node of a group as NCCL sees it, with the GPUs and NICs that take part; None where ranks are no GPUs.

    GPUs are known by the product, or by NVLink or xGMI links.
    """
    nodes = by_domain(collective, topology)
    if name := _known(topology, nodes):
        return _drawn(name, len(nodes[0]), topology)
    return _estimated_node(topology, nodes) if topology is not None and {*DIRECT} & {*topology.classes} else None


def _known(topology: Topology | None, nodes: list[list[int]]) -> str:
    """Return the name of the standard node that a fabric is made of; empty where there is none."""
    family = topology.name.partition(":")[0] if topology is not None else ""
    name = SPELLINGS.get(family, family)
    return name if name in NODE_TYPES and len(nodes[0]) <= NODE_TYPES[name].gpus * NODE_TYPES[name].domain else ""


def _drawn(name: str, gpus: int, topology: Topology | None) -> NodeType:
    """Return so many GPUs of a standard node with their share of the NICs that a fabric draws."""
    kind, host = _part(NODE_TYPES[name], gpus), NODE_TYPES[name]
    if topology is None:
        return kind
    return dataclasses.replace(kind, nics=max(1, topology.nics_per_domain * gpus // (host.gpus * host.domain)))


def _part(host: NodeType, gpus: int) -> NodeType:
    """Return so many GPUs of a host, or of several hosts in one NVLink domain, each with its share of the NICs."""
    return dataclasses.replace(host.part(gpus), domain=1)


def nics_per_node(topology: Topology | None, nodes: list[list[int]]) -> int:
    """Return the NICs of a node as NCCL sees it, or its ranks where none are drawn."""
    return len(nodes[0]) if topology is None else topology.nics_per_domain


def shaped(name: str, nodes: int, ranks: int, *, collnet: bool = False) -> NcclSystem:
    """Return a known type of node as a system of so many nodes and ranks; nodes of one NVLink domain count as one node.

    ``collnet`` says that the network reduces. Fewer ranks per node than the node has GPUs take their share of its NICs.
    """
    kind = NODE_TYPES[name]
    joined = min(nodes, kind.domain)
    per_node = -(-ranks // nodes)
    if per_node > kind.gpus and (nodes > 1 or per_node > kind.gpus * kind.domain):
        raise UsageError(
            f"{ranks} ranks on {nodes} nodes: {name} has {kind.gpus} GPUs", remedy=f"--nodes {-(-ranks // kind.gpus)}"
        )
    domains = -(-nodes // joined)
    kind = _part(kind, -(-ranks // domains))
    return _of_domains(name, domains, ranks, kind, mnnvl=joined > 1, collnet=collnet)


def _of_domains(name: str, domains: int, ranks: int, kind: NodeType, *, mnnvl: bool, collnet: bool) -> NcclSystem:
    """Return a system of NVLink domains, each of a kind of node; ``mnnvl``: several hosts are in one."""
    graphs = search(kind, domains, collnet=collnet)
    return dataclasses.replace(
        named_system(name, 1),
        graphs=graphs,
        nodes=domains,
        ranks=ranks,
        mnnvl=mnnvl,
        nvls_channels=nvls_channels(domains, mnnvl=mnnvl),
    )


def _estimated(topology: Topology | None, nodes: list[list[int]], *, collnet: bool) -> NcclSystem:
    kind = _estimated_node(topology, nodes)
    graphs = search(kind, len(nodes), collnet=collnet)
    return NcclSystem(graphs, len(nodes), sum(map(len, nodes)), kind.capability, nvswitch=kind.nvswitch)


def _estimated_node(topology: Topology | None, nodes: list[list[int]]) -> NodeType:
    """Return a node with as much bandwidth per GPU, and per node to the outside, as the fabric's links have."""
    gpus = max(map(len, nodes))
    inside, outside, nics = 25.0, 25.0, gpus
    if topology is not None and topology.n_links:
        from_ranks = topology.rate[topology.src < topology.n_ranks]
        inside = float(from_ranks.max(initial=0.0)) / 1e9 or inside
        nic_nodes = np.flatnonzero(topology.kinds == NIC)
        nics = max(1, round(len(nic_nodes) / max(len(nodes), 1))) if len(nic_nodes) else gpus
        out_of_nics = topology.rate[np.isin(topology.src, nic_nodes)] if len(nic_nodes) else from_ranks
        outside = float(out_of_nics.min(initial=inside * 1e9)) / 1e9
    links = max(1, round(inside / NVLINK_GBS))
    kind = NodeType("estimated", gpus, 80, links if gpus > 1 else 0, nics, outside, inside, nvswitch=True)
    rings, unit = _mesh(topology, gpus)
    if rings:
        kind = dataclasses.replace(kind, nvlinks=rings, pair_links=1, link_gbs=unit / 1e9, nvswitch=False)
    return kind


def _mesh(topology: Topology | None, gpus: int) -> tuple[int, float]:
    """Return how many rings the links between the GPUs of the first host let through, and bytes/s of one; 0 behind a switch."""
    if topology is None or topology.hosts is None or gpus < 2:
        return 0, 0.0
    ranks = np.flatnonzero(topology.hosts[: topology.n_ranks] == topology.hosts[0])[:gpus]
    widths, unit = link_widths(topology, ranks[None, :])
    return smallest_cut(matrix(widths[0].tolist())), float(unit[0])
