"""How long a collective of no bytes takes: one formula per algorithm, in microseconds.

p ranks on N nodes; hops inside a node and between nodes come from the release's table. Ring: p-1 hops, twice for
all-reduce, of which the inter-node ones are 2(N-1), or 2N in releases 2.12 to 2.22. Tree: a chain inside the node and
floor(lg N) levels above it, up and down. Source: ``src/graph/tuning.cc`` of NVIDIA/nccl, release by release.
"""

from __future__ import annotations

from ringwright.costs.nccl.constants import Constants
from ringwright.costs.nccl.graphs import NcclSystem


def nodes_seen(constants: Constants, system: NcclSystem) -> int:
    """Return the nodes of the formulas: one release takes NVLink across nodes as one node."""
    return 1 if constants.rules.mnnvl_is_one_node and system.mnnvl else system.nodes


def ring_steps(op: str, ranks: int) -> int:
    """Return the steps of a ring: 2(p-1) for all-reduce, p-1 for its halves, p for broadcast and reduce."""
    if op == "all-reduce":
        return 2 * (ranks - 1)
    return ranks - 1 if op in ("all-gather", "reduce-scatter") else ranks


def latency_us(constants: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str) -> float:
    """Return the latency that the release's table holds for a combination that the release computes."""
    base = constants.base_us(algorithm, protocol)
    if algorithm == "ring":
        return base + _ring(constants, system, op, protocol)
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls(constants, system, algorithm, protocol)
    nodes = nodes_seen(constants, system)
    intra, inter = _hops(constants, system, algorithm, protocol)
    local_hops = system.ranks // nodes - 1
    if algorithm == "tree":
        return base + 2 * (local_hops * intra + _log2(nodes) * inter)
    if algorithm == "collnet_direct" and constants.rules.collnet not in ("one", "none"):
        arity_us = 0.4 if "gather" in constants.rules.collnet else 0.5
        return base + 2 * (min(1, local_hops) * intra + local_hops * arity_us) + inter
    if algorithm == "pat":
        return base + _log2(nodes) * (inter / 3.5) + system.ranks * 2.8
    final = 0.0 if constants.rules.collnet == "two-chain-.75" else inter
    return base + 2 * local_hops * intra + final


def _ring(constants: Constants, system: NcclSystem, op: str, protocol: str) -> float:
    nodes = nodes_seen(constants, system)
    steps = ring_steps(op, system.ranks)
    intra, inter = _hops(constants, system, "ring", protocol)
    hop = constants.hop_us("net" if nodes > 1 else _intra_hardware(system, "ring"), "ring", protocol)
    if op in ("broadcast", "reduce"):
        return _chain(constants, system, protocol, hop)
    if constants.rules.ring_latency == "one-hop-kind":
        return steps * hop
    if constants.rules.net_overhead and nodes > 1:
        intra = max(intra, net_overhead_us(system) * (3 if protocol == "simple" else 1))
    inter_steps = _inter_steps(constants, op, nodes)
    return (steps - inter_steps) * intra + inter_steps * inter


def _chain(constants: Constants, system: NcclSystem, protocol: str, hop: float) -> float:
    """Broadcast and reduce count one hop when all channels are alike, and every hop when they are not."""
    if system.graphs.ring.same_channels:
        return hop
    if protocol == "simple":
        nodes = nodes_seen(constants, system)
        hardware = "net" if nodes > 1 else _intra_hardware(system, "ring")
        hop = _tree_hop(constants, system, hardware, protocol)
    return system.ranks * hop


def _nvls(constants: Constants, system: NcclSystem, algorithm: str, protocol: str) -> float:
    base = constants.base_us(algorithm, protocol)
    nodes = nodes_seen(constants, system)
    net = constants.hop_us("net", algorithm, protocol)
    if constants.rules.nvls == "ring-graph":
        return base
    if constants.rules.nvls == "graph":
        return base + (2 * (nodes - 1) * net if algorithm == "nvls_tree" else net * (nodes > 1))
    intra, inter = _hops(constants, system, algorithm, protocol)
    if algorithm == "nvls_tree":
        return base + intra + 2 * _log2(nodes) * inter
    return intra + (inter if nodes > 1 else 0.0)  # the base latency is not counted here


def _hops(constants: Constants, system: NcclSystem, algorithm: str, protocol: str) -> tuple[float, float]:
    """Return microseconds of one hop inside a node and of one between nodes."""
    rules = constants.rules
    graph = system.graphs.of(algorithm)
    hardware = _intra_hardware(system, algorithm)
    tree = algorithm == "tree"
    intra = (
        _tree_hop(constants, system, hardware, protocol) if tree else constants.hop_us(hardware, algorithm, protocol)
    )
    if nodes_seen(constants, system) > 1 and protocol == "ll":
        intra *= rules.ll_intra_multi_node_factor
    alone = rules.one_gpu_uses_tree_net and system.ranks == nodes_seen(constants, system)
    inter = constants.hop_us("net", "tree" if alone else algorithm, protocol)
    if rules.latency_inter == "replaces":
        inter = graph.latency_inter_us or inter
    elif rules.latency_inter == "adds":
        inter += graph.latency_inter_us * (2 if protocol == "simple" else 1)
    return intra, inter


def _tree_hop(constants: Constants, system: NcclSystem, hardware: str, protocol: str) -> float:
    """Return a tree's hop; on Power hosts the PCIe hop of Simple is that of the ring."""
    on_power = constants.rules.power_tree_hop and system.cpu_arch == "power"
    algorithm = "ring" if on_power and hardware == "pcie" and protocol == "simple" else "tree"
    return constants.hop_us(hardware, algorithm, protocol)


def _intra_hardware(system: NcclSystem, algorithm: str) -> str:
    """Return nvlink for a direct NVLink path only: a path through another GPU (NVB) counts as PCIe."""
    return "nvlink" if system.graphs.of(algorithm).type_intra == "NVL" else "pcie"


def _inter_steps(constants: Constants, op: str, nodes: int) -> int:
    if op != "all-reduce":
        return nodes - 1
    if constants.rules.inter_steps == "nodes":
        return 2 * nodes if nodes > 1 else 0
    return 2 * (nodes - 1)


def net_overhead_us(system: NcclSystem) -> float:
    """Return what NCCL counts for the proxy to post one send or one receive: 1 us, on x86 hosts of AMD 2 us.

    Source: ``NCCL_NET_OVERHEAD`` in ``src/graph/tuning.cc``, there as nanoseconds.
    """
    return 2.0 if system.cpu_arch == "x86" and system.cpu_vendor == "amd" else 1.0


def _log2(value: int) -> int:
    return value.bit_length() - 1
