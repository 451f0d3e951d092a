"""A fabric as NCCL's model sees it: the node it is made of, or one estimated from the fabric's links."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.switch_trees import network_switches
from ringwright.costs.nccl import NODE_TYPES, NcclSystem, NodeType, named_system, search
from ringwright.errors import UsageError
from ringwright.topology import NIC

if TYPE_CHECKING:
    from ringwright.topology import Topology

NVLINK_GBS = 20.0  # one link of the estimated box
SPELLINGS = {"dgx-1": "dgx1", "ndv2": "dgx1", "dgx-2": "dgx2", "hgx-h100": "dgx-h100", "dgx-a100": "dgx-a100"}


def system_of(topology: Topology | None, hosts: list[list[int]]) -> NcclSystem:
    """Return the system of a group that lies on ``hosts``."""
    p = sum(map(len, hosts))
    family = topology.name.partition(":")[0] if topology is not None else ""
    name = SPELLINGS.get(family, family)
    known = name in NODE_TYPES and len(hosts[0]) <= NODE_TYPES[name].gpus * NODE_TYPES[name].domain
    network = network_switches(topology)
    adds = bool(network)
    system = shaped(name, len(hosts), p, collnet=adds) if known else _estimated(topology, hosts, collnet=adds)
    nvls = system.nvls and topology is not None and len(topology.aggregators) > len(network)
    heads = system.graphs.collnet_direct.channels
    return dataclasses.replace(system, nvls=nvls, collnet=adds and system.nodes > 1, collnet_heads=heads)


def nics_per_node(topology: Topology | None, hosts: list[list[int]]) -> int:
    """Return the NICs of a host, or its ranks where none are drawn."""
    return len(hosts[0]) if topology is None else topology.nics_per_node


def shaped(name: str, nodes: int, ranks: int, *, collnet: bool = False) -> NcclSystem:
    """Return a known type of node as a system of so many nodes and ranks; nodes of one NVLink domain count as one node.

    ``collnet`` says that the network reduces. Fewer ranks per node than the node has GPUs take their share of its NICs.
    """
    kind = NODE_TYPES[name]
    per_node = -(-ranks // nodes)
    joined = min(nodes, kind.domain)
    if per_node > kind.gpus and (nodes > 1 or per_node > kind.gpus * kind.domain):
        raise UsageError(
            f"{ranks} ranks on {nodes} nodes: {name} has {kind.gpus} GPUs", remedy=f"--nodes {-(-ranks // kind.gpus)}"
        )
    if per_node < kind.gpus:
        kind = dataclasses.replace(kind, gpus=per_node, nics=max(1, kind.nics * per_node // kind.gpus))
    kind = dataclasses.replace(kind, gpus=kind.gpus * joined, nics=kind.nics * joined)
    groups = -(-nodes // joined)
    system = named_system(name, 1)
    return dataclasses.replace(
        system, graphs=search(kind, groups, collnet=collnet), nodes=groups, ranks=ranks, mnnvl=joined > 1
    )


def _estimated(topology: Topology | None, hosts: list[list[int]], *, collnet: bool) -> NcclSystem:
    """Return a node with as much bandwidth per GPU, and per host to the outside, as the fabric's links have."""
    gpus = max(map(len, hosts))
    inside, outside, nics = 25.0, 25.0, gpus
    if topology is not None and topology.n_links:
        from_ranks = topology.rate[topology.src < topology.n_ranks]
        inside = float(from_ranks.max(initial=0.0)) / 1e9 or inside
        nic_nodes = np.flatnonzero(topology.kinds == NIC)
        nics = max(1, round(len(nic_nodes) / max(len(hosts), 1))) if len(nic_nodes) else gpus
        out_of_nics = topology.rate[np.isin(topology.src, nic_nodes)] if len(nic_nodes) else from_ranks
        outside = float(out_of_nics.min(initial=inside * 1e9)) / 1e9
    links = max(1, round(inside / NVLINK_GBS))
    kind = NodeType("estimated", gpus, 80, links if gpus > 1 else 0, nics, outside, inside, nvswitch=True)
    graphs = search(kind, len(hosts), collnet=collnet)
    return NcclSystem(graphs, len(hosts), sum(map(len, hosts)), kind.capability, nvswitch=True)
