"""What a collective of many bytes reaches: one formula per algorithm, in GB/s of the operation's size.

First the bus: channels times speed, less what the protocol and the algorithm cost. Then the operation: times
p/steps for rings, a half for trees. Source: ``src/graph/tuning.cc`` of NVIDIA/nccl, release by release.
"""

from __future__ import annotations

import math

from ringwright.costs.nccl.constants import Constants, Rows
from ringwright.costs.nccl.constants import constants as constants_of
from ringwright.costs.nccl.graphs import TREE, Graph, NcclSystem
from ringwright.costs.nccl.latency import nodes_seen, ring_steps

GATHERS = ("all-gather", "reduce-scatter")
_GENERATIONS = (("blackwell", 100), ("hopper", 90), ("ampere", 80))


def generation(constants: Constants, system: NcclSystem) -> str:
    """Return the row of the release's tables that the GPUs use: volta, ampere, hopper or blackwell."""
    if constants.rules.capability == "exact-80":
        return "ampere" if system.capability == 80 and system.same_generation else "volta"
    for name, capability in _GENERATIONS:
        if system.capability >= capability and name in constants.tree_channel_max_gbs:
            return name
    return "volta"


def knows(release: str, system: NcclSystem) -> bool:
    """Return whether a release's tables hold the GPUs' generation: an older release is older than they are."""
    wanted = next((name for name, capability in _GENERATIONS if system.capability >= capability), "")
    return not wanted or wanted in constants_of(release).tree_channel_max_gbs


def bandwidth_gbs(constants: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str) -> float:
    """Return the operation's bandwidth for a combination that the release computes, before it is switched off."""
    nodes = nodes_seen(constants, system)
    graph = nvls_graph(constants, system) if algorithm == "nvls" else system.graphs.of(algorithm)
    speed = _speed(constants, system, graph, op, algorithm)
    total = constants.rules.total_max_gbs.get(generation(constants, system), math.inf)
    bus = min(graph.channels * speed, total)
    if algorithm == "ring":
        bus = _ring(constants, system, op, protocol, bus)
    elif algorithm == "tree":
        bus = _tree(constants, system, op, protocol, bus)
    elif algorithm == "pat":
        bus *= constants.rules.pat_factor
    elif algorithm.startswith("collnet"):
        bus = _collnet(constants, system, op, algorithm, protocol, bus)
    return bus * _ratio(constants, op, algorithm, nodes, system.ranks)


def nvls_graph(constants: Constants, system: NcclSystem) -> Graph:
    """Return the graph of NVLS: the first release with NVLS took the ring's."""
    return system.graphs.ring if constants.rules.nvls == "ring-graph" else system.graphs.nvls


def _speed(constants: Constants, system: NcclSystem, graph: Graph, op: str, algorithm: str) -> float:
    """Return GB/s of one channel: the speed inside a node counts for one and two nodes and for CollNet."""
    nodes = nodes_seen(constants, system)
    speed = graph.bw_intra_gbs if nodes <= 2 or algorithm.startswith("collnet") else graph.bw_inter_gbs
    if constants.rules.ring_latency == "one-hop-kind":
        return float(int(speed))  # the first release with a model counted whole GB/s
    if algorithm not in ("nvls", "nvls_tree") or constants.rules.nvls in ("graph", "ring-graph"):
        return speed
    if constants.rules.nvls == "efficiency":
        return _efficient_speed(constants, system, graph, op, algorithm)
    if algorithm == "nvls_tree":
        return min(graph.bw_intra_gbs, graph.bw_inter_gbs / (1 if nodes <= 2 else 2))
    if constants.rules.nvls == "gather-side" and op in GATHERS:
        share = (system.ranks_per_node - 1) / system.ranks_per_node
        return min(graph.bw_intra_gbs * share, graph.bw_inter_gbs * 0.9)
    return min(graph.bw_intra_gbs, graph.bw_inter_gbs)


def _efficient_speed(constants: Constants, system: NcclSystem, graph: Graph, op: str, algorithm: str) -> float:
    """Return NVLS's GB/s per channel: a share of NVLink, twice for all-reduce, which runs both directions at once."""
    kind = generation(constants, system)
    nodes = nodes_seen(constants, system)
    if graph.channels < 2:
        return 0.0
    intra = graph.bw_intra_gbs * constants.nvls_efficiency.get(kind, 0.0) * (graph.channels - 1) / graph.channels
    intra *= 2.0 if op == "all-reduce" else (system.ranks_per_node - 1) / system.ranks_per_node
    if algorithm == "nvls":
        return intra if nodes < 2 else min(intra, graph.bw_inter_gbs)
    most = cap(constants.nvls_tree_channel_max_gbs, kind, nodes)
    return min(intra, graph.bw_inter_gbs * (2 if nodes <= 2 else 1), most)


def _ring(constants: Constants, system: NcclSystem, op: str, protocol: str, bus: float) -> float:
    rules = constants.rules
    nodes = nodes_seen(constants, system)
    kind = generation(constants, system)
    if protocol == "ll":
        copies = nodes == 1 and op not in ("all-reduce", "reduce")
        return min(_ll_max(constants, system), bus * (rules.ring_ll_copy_factor if copies else rules.ring_ll_factor))
    if protocol == "simple":
        return bus
    alone = system.ranks / nodes < 2
    most = cap(constants.ring_ll128_channel_max_gbs, kind, nodes)
    most = constants.ring_ll128_channel_max_by_op_gbs.get(op, most) * system.graphs.ring.channels
    most = constants.ring_ll128_total_max_by_op_gbs.get(op, most)
    return min(bus * (rules.ring_ll128_one_gpu_factor if alone else rules.ring_ll128_factor), most)


def _tree(constants: Constants, system: NcclSystem, op: str, protocol: str, bus: float) -> float:
    rules = constants.rules
    nodes = nodes_seen(constants, system)
    kind = generation(constants, system)
    channels = system.graphs.tree.channels
    most = cap(constants.tree_channel_max_gbs, kind, nodes) * channels
    bus = min(bus * rules.tree_factor, most, _tree_total(constants, kind, nodes, protocol))
    if protocol == "ll":
        bus = min(bus / rules.tree_ll_divisor, _ll_max(constants, system))
    if protocol == "ll128":
        most = cap(constants.tree_ll128_channel_max_gbs, kind, nodes)
        most = constants.tree_ll128_channel_max_by_op_gbs.get(op, most)
        bus = min(bus * rules.tree_ll128_factor[nodes > 1], most * channels)
    return bus * (rules.plain_tree_factor if system.graphs.tree.pattern == TREE else 1.0)


def _tree_total(constants: Constants, kind: str, nodes: int, protocol: str) -> float:
    """Return the most that all channels of a tree reach together: a limit of the releases before 2.8."""
    limits = constants.rules.tree_total_max_gbs
    if not limits:
        return math.inf
    if protocol == "ll128" and f"{kind}-ll128" in limits:
        return limits[f"{kind}-ll128"][min(nodes, 3) - 1]
    return limits[str(min(nodes, 3))][0]


def _collnet(constants: Constants, system: NcclSystem, op: str, algorithm: str, protocol: str, bus: float) -> float:
    kind = constants.rules.collnet
    if kind == "one":  # LL loses the direct reads of the NIC on both sides
        return bus * 0.9 * {"ll": 1 / 6, "ll128": 0.0, "simple": 1.0}[protocol]
    if protocol != "simple":
        return 0.0
    if kind == "one-simple":
        return bus
    if algorithm == "collnet_chain":
        return bus * (0.75 if kind == "two-chain-.75" else 1.0)
    per_node = system.ranks / nodes_seen(constants, system)
    graph = system.graphs.collnet_direct
    if op in GATHERS:
        return _collnet_gather(constants, graph, per_node)
    if not graph.channels:
        return 0.0
    factor = per_node / graph.channels  # GPUs per NIC
    bus /= factor - (factor - 1) / 2
    return bus * (0.85 if system.capability >= 90 and kind != "two-chain-.75" else 1.0)


def _collnet_gather(constants: Constants, graph: Graph, per_node: float) -> float:
    if constants.rules.collnet == "two-gather-.9":
        return per_node * min(graph.bw_intra_gbs, graph.bw_inter_gbs * 0.9)
    weight = (per_node - 1) / 7
    return per_node * graph.bw_intra_gbs * (weight * 0.85 + (1 - weight) * 0.95)


def _ratio(constants: Constants, op: str, algorithm: str, nodes: int, ranks: int) -> float:
    """Return operation bytes per bus byte."""
    kind = constants.rules.nvls
    nvls = algorithm in ("nvls", "nvls_tree")
    if algorithm == "ring":
        return ranks / ring_steps(op, ranks)
    if op in GATHERS and (constants.rules.pat_factor or algorithm == "collnet_direct"):
        return 1.0
    if kind == "efficiency" and nvls:
        return ranks / ring_steps(op, ranks)
    if kind == "ring-graph" and nvls:
        return 0.75
    if kind == "graph" and algorithm == "nvls_tree":
        return 0.7 * nodes / (2 * (nodes - 1)) if nodes > 1 else 0.0
    return 5 / 6 if nvls else 0.5


def _ll_max(constants: Constants, system: NcclSystem) -> float:
    """Return the most that LL reaches: by GPU on one node, by the maker of the CPU on several."""
    nodes = nodes_seen(constants, system)
    amd = system.cpu_vendor == "amd" or (system.cpu_vendor == "mixed" and constants.rules.mixed_vendor_counts_as_amd)
    kind = generation(constants, system) if nodes == 1 else "ampere" if amd else "volta"
    return cap(constants.ll_max_bw_gbs, kind, nodes)


def cap(table: Rows, kind: str, nodes: int) -> float:
    """Return a table's limit for a generation and a number of nodes; no table, no limit."""
    return table[kind][min(nodes, 3) - 1] if table else math.inf
