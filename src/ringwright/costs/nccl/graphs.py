"""The result of NCCL's topology search that its cost model uses: channels and speed per algorithm, and the facts of a system.

Units: GB/s per channel, microseconds. Sources: ``src/graph/search.cc``, ``src/include/graph.h`` of NVIDIA/nccl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringwright.ground.errors import UsageError

# Best to worst; later releases put C2C, P2C and PXN in between, which leaves the order of the others as it was.
PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")

BALANCED_TREE, SPLIT_TREE, TREE, RING, NVLS, COLLNET_DIRECT = range(1, 7)
PATTERNS = {
    BALANCED_TREE: "balanced-tree",
    SPLIT_TREE: "split-tree",
    TREE: "tree",
    RING: "ring",
    NVLS: "nvls",
    COLLNET_DIRECT: "collnet-direct",
}


def path_at_most(kind: str, worst: str) -> bool:
    """Return whether the path type ``kind`` is as good as ``worst`` or better."""
    return PATHS.index(kind) <= PATHS.index(worst)


@dataclass(frozen=True, slots=True)
class Graph:
    """One algorithm's channels: how many, how fast inside a node and between nodes, over which path types.

    ``orders`` and ``nets`` hold, per channel, the GPUs in chain order and the network devices at its two ends; they
    may be empty, the cost model does not ask for them.
    """

    pattern: int
    channels: int
    bw_intra_gbs: float
    bw_inter_gbs: float
    type_intra: str = "NVL"
    type_inter: str = "PIX"
    same_channels: bool = True
    latency_inter_us: float = 0.0
    cross_nic: int = 0
    orders: tuple[tuple[int, ...], ...] = ()
    nets: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        for kind in (self.type_intra, self.type_inter):
            if kind not in PATHS:
                raise UsageError(f"'{kind}' is not a path type", remedy=f"use one of {' '.join(PATHS)}")
        if self.pattern not in PATTERNS or self.channels < 0 or min(self.bw_intra_gbs, self.bw_inter_gbs) < 0:
            raise UsageError(
                f"no graph has pattern {self.pattern}, {self.channels} channels, "
                f"{self.bw_intra_gbs}/{self.bw_inter_gbs} GB/s",
                remedy="patterns are 1 to 6; channels and speeds are not negative",
            )


ABSENT = Graph(TREE, 0, 0.0, 0.0, type_intra="LOC", type_inter="LOC", same_channels=False)


@dataclass(frozen=True, slots=True)
class Graphs:
    """The graphs of a communicator; an algorithm that the node cannot do has :data:`ABSENT`."""

    ring: Graph
    tree: Graph
    collnet_direct: Graph = ABSENT
    collnet_chain: Graph = ABSENT
    nvls: Graph = ABSENT

    def of(self, algorithm: str) -> Graph:
        """Return the graph that ``algorithm`` runs on: NVLS-Tree shares that of NVLS, PAT that of the tree."""
        return {
            "ring": self.ring,
            "tree": self.tree,
            "pat": self.tree,
            "collnet_direct": self.collnet_direct,
            "collnet_chain": self.collnet_chain,
            "nvls": self.nvls,
            "nvls_tree": self.nvls,
        }[algorithm]

    def named(self) -> Mapping[str, Graph]:
        """Return the graphs that exist, by name."""
        names = ("ring", "tree", "collnet_chain", "nvls", "collnet_direct")
        return {name: getattr(self, name) for name in names if getattr(self, name).channels}


@dataclass(frozen=True, slots=True)
class NcclSystem:
    """The facts beside the graphs that the cost model asks for.

    ``capability`` is the lowest compute capability times ten (90 for H100), ``capability_max`` the highest where they
    differ. ``cpu_vendor``: intel, amd, mixed or other; ``cpu_arch``: x86, arm or power. ``nvls`` says that NVLink
    SHARP works, ``collnet`` that the network reduces (``collnet_gathers``: it also gathers and scatters), ``mnnvl``
    that NVLink spans the nodes. ``channels`` overrides what the communicator would open, as a log prints it.
    """

    graphs: Graphs
    nodes: int
    ranks: int
    capability: int
    capability_max: int | None = None
    cpu_vendor: str = "intel"
    cpu_arch: str = "x86"
    nvswitch: bool = False
    nvls: bool = False
    collnet: bool = False
    collnet_gathers: bool = False
    collnet_heads: int = 0
    mnnvl: bool = False
    local_ranks_max: int | None = None
    net_offload: bool = False
    cuda: str = ""
    channels: int | None = None
    nvls_channels: int = 16
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= self.ranks:
            raise UsageError(
                f"{self.ranks} ranks on {self.nodes} nodes", remedy="give at least one node and one rank per node"
            )
        if self.channels is not None and self.channels < 1:
            raise UsageError(f"{self.channels} channels", remedy="leave channels out, or give at least 1")

    @property
    def ranks_per_node(self) -> float:
        """Ranks per node, a fraction where the nodes differ."""
        return self.ranks / self.nodes

    @property
    def local_ranks(self) -> int:
        """The most ranks on one node."""
        return self.local_ranks_max or -(-self.ranks // self.nodes)

    @property
    def same_generation(self) -> bool:
        """Whether all GPUs have the same compute capability."""
        return self.capability_max in (None, self.capability)
