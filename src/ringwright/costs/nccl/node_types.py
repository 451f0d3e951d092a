"""What NCCL's topology search would find on a standard node, computed by its rule from the node's links.

The rule: try speeds from the published list, highest first; count the channels that fit; keep the graph with the most
channels x speed; stop when that reaches what the busiest GPU can move, or when the next speed is below half of the
kept one; open fast channels twice at half the speed; then raise the speed inside a node for trees.

Simplified: NCCL walks all paths of the topology, we count capacity: a channel takes its speed once from every GPU's
NVLink (or PCIe path) and once from one NIC. So every node is taken as uniform, a NIC as shared by its
nearest GPUs, a mesh of NVLinks as rings of single links; which GPU follows which is the matter of ``ring_search``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ringwright.costs.nccl.graphs import (
    ABSENT,
    BALANCED_TREE,
    COLLNET_DIRECT,
    NVLS,
    RING,
    TREE,
    Graph,
    Graphs,
    NcclSystem,
)
from ringwright.ground.errors import UsageError

# GB/s of one NVLink by compute capability, as the topology search counts it.
NVLINK_GBS = {60: 18.0, 70: 20.0, 80: 20.0, 86: 12.0, 90: 20.6, 100: 40.1}

INTRA_SPEEDS = {
    0: (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    90: (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    100: (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
INTER_SPEEDS = {
    0: (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    90: (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    100: (96, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
}
SEARCH_CHANNELS_MAX = 16
HEADS_MAX = 8  # of CollNet-Direct on a node
NVLS_HEADS_MAX = 32
NVLS_CHANNELS, NVLS_CHANNELS_RACK, NVLS_CHANNELS_RACKS = 16, 24, 32


@dataclass(frozen=True, slots=True)
class NodeType:
    """One node: GPUs and their links; rates in GB/s.

    ``nvlinks`` per GPU (0 = PCIe only), ``pair_links`` of them at most between two GPUs without a switch, ``link_gbs``
    of one of them where it is no NVLink of that capability, ``pcie_gbs`` of a GPU, ``nics`` NICs of ``nic_gbs`` each.
    ``type_inter`` is the path from GPU to NIC that all channels find, ``domain`` the nodes that one NVLink fabric joins.
    """

    name: str
    gpus: int
    capability: int
    nvlinks: int
    nics: int
    nic_gbs: float
    pcie_gbs: float
    pair_links: int = 0
    nvswitch: bool = False
    type_inter: str = "PXB"
    cpu_vendor: str = "intel"
    cpu_arch: str = "x86"
    domain: int = 1
    link_gbs: float = 0.0
    vendor: str = "nvidia"  # of its GPUs

    @property
    def nvlink_gbs(self) -> float:
        """GB/s of all NVLinks of a GPU, one direction."""
        known = max((key for key in NVLINK_GBS if key <= self.capability), default=60)
        return self.nvlinks * (self.link_gbs or NVLINK_GBS[known])

    @property
    def path_gbs(self) -> float:
        """GB/s that one channel can take between two GPUs."""
        if not self.nvlinks:
            return self.pcie_gbs
        return self.nvlink_gbs if self.nvswitch else self.nvlink_gbs * self.pair_links / self.nvlinks

    @property
    def gpu_gbs(self) -> float:
        """GB/s that all channels of a GPU share inside the node."""
        return self.nvlink_gbs or self.pcie_gbs

    def part(self, gpus: int) -> NodeType:
        """Return the node with ``gpus`` of its GPUs, their share of its NICs and, of a full mesh, the links between them."""
        nvlinks = self.nvlinks
        if not self.nvswitch and nvlinks == self.pair_links * (self.gpus - 1):
            nvlinks = self.pair_links * (gpus - 1)
        return replace(self, gpus=gpus, nics=max(1, self.nics * gpus // self.gpus), nvlinks=nvlinks)


NODE_TYPES = {
    found.name: found
    for found in (
        NodeType("dgx1", 8, 70, 6, 4, 12.5, 12.0, pair_links=1, type_inter="PIX"),
        NodeType("ndv2", 8, 70, 6, 1, 12.5, 12.0, pair_links=1, type_inter="PIX"),
        NodeType("dgx2", 16, 70, 6, 8, 12.5, 12.0, nvswitch=True, type_inter="PIX"),
        NodeType("dgx-a100", 8, 80, 12, 8, 25.0, 24.0, nvswitch=True, cpu_vendor="amd"),
        NodeType("dgx-h100", 8, 90, 18, 8, 50.0, 48.0, nvswitch=True, type_inter="PXN"),
        NodeType("p4d", 8, 80, 12, 4, 12.5, 24.0, nvswitch=True),
        NodeType(
            "gb200", 4, 100, 18, 4, 50.0, 48.0, nvswitch=True, type_inter="P2C", cpu_vendor="other", cpu_arch="arm"
        ),
        NodeType(
            "gb200-nvl72",
            4,
            100,
            18,
            4,
            50.0,
            48.0,
            nvswitch=True,
            type_inter="P2C",
            cpu_vendor="other",
            cpu_arch="arm",
            domain=18,
        ),
        NodeType("dgx-b200", 8, 100, 18, 8, 50.0, 48.0, nvswitch=True, type_inter="PXN"),
        NodeType("polaris", 4, 80, 12, 2, 25.0, 24.0, pair_links=4, type_inter="PHB", cpu_vendor="amd"),
        # RCCL counts 48 GB/s an xGMI link; its channels are taken to be like those of the NVIDIA GPUs of the same years.
        NodeType(
            "mi300",
            8,
            90,
            7,
            8,
            50.0,
            48.0,
            pair_links=1,
            type_inter="PXB",
            cpu_vendor="amd",
            link_gbs=48.0,
            vendor="amd",
        ),
        NodeType("pcie", 4, 80, 0, 1, 12.5, 12.0, type_inter="PHB"),
    )
}


def named_system(name: str, nodes: int = 1, *, collnet: bool = False, cpu_vendor: str | None = None) -> NcclSystem:
    """Return ``nodes`` nodes of a known kind as a :class:`NcclSystem`, its graphs searched; raise UsageError if unknown.

    ``collnet`` says that the network reduces (SHARP). Nodes of one NVLink fabric count as one until it is full.
    """
    if name not in NODE_TYPES:
        raise UsageError(f"no box is called '{name}'", remedy=f"use one of {', '.join(sorted(NODE_TYPES))}")
    if nodes < 1:
        raise UsageError(f"{nodes} nodes", remedy="give at least one")
    kind = NODE_TYPES[name]
    joined = min(nodes, kind.domain)
    if nodes % joined:
        raise UsageError(
            f"{nodes} nodes do not fill NVLink fabrics of {kind.domain}",
            remedy=f"give up to {kind.domain} nodes, or a multiple of {kind.domain}",
        )
    kind = _joined(kind, joined)
    groups = nodes // joined
    kind = replace(kind, cpu_vendor=cpu_vendor or kind.cpu_vendor)
    return system_of_nodes(kind, groups, mnnvl=joined > 1, collnet=collnet, name=f"{name}:{nodes}")


def system_of_nodes(
    kind: NodeType, nodes: int, *, ranks: int = 0, mnnvl: bool = False, collnet: bool = False, name: str = ""
) -> NcclSystem:
    """Return nodes of a kind as a system, its graphs searched; a node is a host, or (``mnnvl``) the hosts of an NVLink domain.

    ``ranks`` where the nodes are not all full. ``collnet`` says that the network reduces (SHARP).
    """
    return NcclSystem(
        search(kind, nodes, collnet=collnet),
        nodes=nodes,
        ranks=ranks or nodes * kind.gpus,
        capability=kind.capability,
        cpu_vendor=kind.cpu_vendor,
        cpu_arch=kind.cpu_arch,
        nvswitch=kind.nvswitch,
        nvls=kind.nvswitch and kind.capability >= 90,
        collnet=collnet,
        mnnvl=mnnvl,
        nvls_channels=nvls_channels(nodes, mnnvl=mnnvl),
        name=name,
    )


def nvls_channels(domains: int, *, mnnvl: bool) -> int:
    """Return the channels that NVLS runs on; ``mnnvl``: an NVLink domain joins several hosts, which only Blackwell and later do.

    Source: ``src/transport/nvls.cc`` of NVIDIA/nccl. They are taken for every release, which is assumed.
    """
    return NVLS_CHANNELS if not mnnvl else NVLS_CHANNELS_RACK if domains == 1 else NVLS_CHANNELS_RACKS


def placed(spec: str) -> tuple[NodeType, NcclSystem]:
    """Return the node and the system of ``dgx-a100:2`` (2 nodes) or ``dgx-a100:2x4`` (4 GPUs of each); UsageError if none.

    GPUs that are left out take their share of the NICs with them. A rack of one NVLink fabric is one box.
    """
    name, _, text = spec.partition(":")
    sizes = text.split("x") if text else ["1"]
    if (
        name not in NODE_TYPES
        or len(sizes) > 2
        or not all(part.isdecimal() and 0 < int(part) < 1 << 20 for part in sizes)
    ):
        raise UsageError(
            f"'{spec}' is not a box NCCL's search is known for",
            remedy=f"write name:nodes or name:nodesxGPUs with one of {', '.join(sorted(NODE_TYPES))}",
        )
    nodes = int(sizes[0])
    system = named_system(name, NODE_TYPES[name].domain)
    kind = _joined(NODE_TYPES[name], NODE_TYPES[name].domain)
    gpus = int(sizes[1]) if len(sizes) > 1 else kind.gpus
    if gpus > kind.gpus:
        raise UsageError(f"{name} has {kind.gpus} GPUs, not {gpus}", remedy=f"{name}:{nodes}x{kind.gpus}")
    joined = gpus > NODE_TYPES[name].gpus  # more than a tray of the rack
    kind = kind.part(gpus)
    return kind, replace(
        system,
        graphs=search(kind, nodes),
        nodes=nodes,
        ranks=nodes * gpus,
        mnnvl=joined,
        nvls_channels=nvls_channels(nodes, mnnvl=joined),
        name=spec,
    )


def _joined(kind: NodeType, trays: int) -> NodeType:
    """Return the trays of one NVLink fabric as one box."""
    return replace(kind, gpus=kind.gpus * trays, nics=kind.nics * trays, domain=1)


def search(kind: NodeType, nodes: int, *, collnet: bool = False) -> Graphs:
    """Return the graphs of ``nodes`` nodes by the rule above."""
    ring = _twice(_ring(kind, nodes), kind)
    tree = _faster_inside(replace(ring, pattern=BALANCED_TREE if kind.gpus > 1 else TREE), kind, nodes)
    nvls = _nvls(kind, nodes)
    if not collnet or nodes < 2:
        return Graphs(ring, tree, nvls=nvls)
    heads = min(HEADS_MAX, kind.gpus, kind.nics)
    speed = _heads_speed(kind, nodes, heads)
    direct = replace(ring, pattern=COLLNET_DIRECT, channels=heads, bw_intra_gbs=speed, bw_inter_gbs=speed)
    chain = _faster_inside(replace(ring, pattern=TREE), kind, nodes)
    return Graphs(ring, tree, collnet_direct=direct if kind.nvswitch else ABSENT, collnet_chain=chain, nvls=nvls)


def speeds(kind: NodeType, nodes: int) -> tuple[float, ...]:
    """Return the list of speeds that the search tries, highest first."""
    table = INTRA_SPEEDS if nodes < 2 else INTER_SPEEDS
    return table[max(key for key in table if key <= kind.capability)]


def _ring(kind: NodeType, nodes: int) -> Graph:
    best: tuple[int, float] = (0, 0.0)
    enough = max(kind.nvlink_gbs, kind.pcie_gbs)
    for speed in speeds(kind, nodes):
        channels, kept = best
        if channels and speed < 0.49 * kept:
            break
        fit = _fit(kind, nodes, speed)
        if fit * speed > channels * kept:
            best = (fit, speed)
        if best[0] * best[1] >= enough:
            break
    channels, speed = best if best[0] else (1, 0.1)
    alike = channels == 1 or (nodes < 2 and kind.nvswitch)
    inside = "NVL" if kind.nvlinks else "SYS"
    return Graph(RING, channels, speed, speed, inside, kind.type_inter if nodes > 1 else "PIX", same_channels=alike)


def _fit(kind: NodeType, nodes: int, speed: float) -> int:
    """Return how many channels of ``speed`` the GPUs, their direct paths and the NICs carry at once."""
    channels = SEARCH_CHANNELS_MAX
    if kind.gpus > 1:
        channels = min(channels, _inside(kind, nodes, speed))
    if nodes > 1:
        nic_gbs = min(kind.nic_gbs, kind.pcie_gbs)
        channels = min(channels, kind.nics * int(nic_gbs / speed))
    return channels


def _inside(kind: NodeType, nodes: int, speed: float) -> int:
    """Return how many channels of ``speed`` the GPUs carry; in a mesh each takes its place on every link it crosses.

    A ring crosses as many links as there are GPUs; one that goes on to another node has one hop less.
    """
    if speed > kind.path_gbs:
        return 0
    if kind.nvswitch or not kind.nvlinks:
        return int(kind.gpu_gbs / speed)
    places = kind.nvlinks // kind.pair_links * int(kind.path_gbs / speed)
    return places if nodes < 2 else places * kind.gpus // (kind.gpus - 1)


def _twice(graph: Graph, kind: NodeType) -> Graph:
    """Return fast channels opened twice at half the speed."""
    slow = graph.bw_intra_gbs < (50.0 if kind.capability > 80 and graph.channels > 4 else 25.0)
    if slow or graph.channels * 2 > 2 * SEARCH_CHANNELS_MAX:
        return graph
    half = graph.bw_intra_gbs / 2
    return replace(graph, channels=graph.channels * 2, bw_intra_gbs=half, bw_inter_gbs=half)


def _faster_inside(graph: Graph, kind: NodeType, nodes: int) -> Graph:
    """Return a tree whose speed inside the node is raised while its GPUs and twice the network's speed allow it."""
    if nodes < 2:
        return graph
    inside = graph.bw_intra_gbs
    for speed in reversed([speed_gbs for speed_gbs in speeds(kind, nodes) if speed_gbs > inside]):
        full = graph.channels * speed > kind.gpu_gbs or speed > kind.path_gbs
        if inside >= 2 * graph.bw_inter_gbs or (full and kind.gpus > 1):
            break
        inside = speed
    return replace(graph, bw_intra_gbs=inside)


def _nvls(kind: NodeType, nodes: int) -> Graph:
    """Return one channel per GPU that is a head, of a large domain's GPUs the first ones; a multicast takes its speed from each.

    The speed between nodes is raised while the NICs allow it, up to twice that inside: on one node nothing stops it.
    """
    if not kind.nvswitch or kind.capability < 90 or kind.gpus < 2:
        return ABSENT
    heads = min(NVLS_HEADS_MAX, kind.gpus)
    speed = outside = _heads_speed(kind, nodes, heads)
    for faster in reversed([speed_gbs for speed_gbs in speeds(kind, nodes) if speed_gbs > speed]):
        short = nodes > 1 and faster > min(kind.nic_gbs * kind.nics / heads, kind.pcie_gbs)
        if outside >= 2 * speed or short:
            break
        outside = faster
    between = kind.type_inter if nodes > 1 else "PIX"
    return Graph(NVLS, heads, speed, outside, "NVL", between, same_channels=False)


def _heads_speed(kind: NodeType, nodes: int, heads: int) -> float:
    most = kind.gpu_gbs / heads
    if nodes > 1:
        most = min(most, kind.nic_gbs * kind.nics / heads, kind.pcie_gbs)
    return next((speed for speed in speeds(kind, nodes) if speed <= most), 0.0)
