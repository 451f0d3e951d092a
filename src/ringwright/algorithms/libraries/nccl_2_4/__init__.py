"""NCCL: double binary trees since 2.4, and its choice of algorithm, protocol and channels in every release since.

Idea: predict the time of every algorithm (Ring, Tree, CollNet, NVLS, NVLS-Tree, PAT) with every protocol (LL, LL128, Simple) from
    fixed tables and the speeds of the topology search, take the least, and cut it over channels.
Cost: that of the algorithm chosen; the prediction itself is in ``costs.nccl``.
Knobs: release=2.30 (``nccl-2-4@2.27``); algorithm, protocol and channels force the choice; buffer_bytes is the buffer of Simple
    (NCCL_BUFFSIZE; 4 MiB), an eighth of which is a step; tuning=True puts NCCL's own hop latencies and flag bytes into the
    program.
Holds: an operation without a model (all-to-all, gather, scatter, send-recv) is grouped sends and receives.
Figure: up to 180 times lower latency than rings at 24,576 GPUs (announcement of 2.4; unconfirmed).
Source: NVIDIA/nccl, tags 2.4 to 2.30: src/graph/{trees,search,tuning,connect}.cc, src/enqueue.cc.
Declines: CollNet, and NVLS over several nodes, on fabrics without aggregating switches in the network.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

from ringwright.algorithms.blocks.collnet_chain import collnet_chain
from ringwright.algorithms.blocks.collnet_direct import collnet_direct
from ringwright.algorithms.blocks.double_binary_tree import over_trees
from ringwright.algorithms.blocks.nvls import nvls
from ringwright.algorithms.blocks.nvls_collnet import nvls_collnet
from ringwright.algorithms.blocks.nvls_tree import nvls_tree
from ringwright.algorithms.blocks.pat import pat
from ringwright.algorithms.libraries.nccl_2_4.chunking import MOST_SEGMENTS, loop_counts, parts, segments
from ringwright.algorithms.libraries.nccl_2_4.forcing import forced, is_2_4
from ringwright.algorithms.libraries.nccl_2_4.grouped import grouped
from ringwright.algorithms.libraries.nccl_2_4.orders import Entrances, Orders, rank_orders
from ringwright.algorithms.libraries.nccl_2_4.rings import chains, rings
from ringwright.algorithms.libraries.nccl_2_4.system import nics_per_node, node_type, system_of
from ringwright.algorithms.libraries.nccl_2_4.tuning import of_groups, tuned
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.placement import by_domain, is_regular
from ringwright.costs.nccl import (
    ALGORITHMS,
    PROTOCOLS,
    NcclChoice,
    NcclSystem,
    algorithm_2_4,
    algorithm_named,
    choose,
    double_tree,
    protocol_named,
    rank_trees,
    releases,
    tree_threshold_bytes,
)
from ringwright.costs.nccl import OPS as MODELLED
from ringwright.costs.nccl.timing import TIMED_GROUPED, ClosedForm, NcclOverride, has_form
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Channels, Choices, Pattern, Range
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = (
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "broadcast",
    "reduce",
    "all-to-all",
    "gather",
    "scatter",
    "send-recv",
)
FABRICS = ("switch", "dgx-a100:2", "dgx-h100:1", "dgx-h100:4", "dgx-h100:2,sharp=true", "dgx-a100:4,sharp=true")
NEWEST = "2.30"
LL_THRESHOLD_2_4 = 16 << 10  # NCCL_LL_THRESHOLD
RELEASES = ("2.4", *dict.fromkeys(each.rpartition(".")[0] for each in releases()))
PATCHED = Pattern(r"v?2\.[0-9]{1,2}(\.[0-9]{1,2})?(-[0-9]+)?", "with its patch, as 2.21.5", ("2.21.5", "v2.27.3-1"))


def nccl_2_4(
    collective: Collective,
    topology: Topology | None = None,
    *,
    release: Annotated[str, Choices(RELEASES), PATCHED] = NEWEST,
    algorithm: Annotated[str, Choices(ALGORITHMS, algorithm_named)] | None = None,
    protocol: Annotated[str, Choices(PROTOCOLS, protocol_named)] | None = None,
    channels: Channels | None = None,
    buffer_bytes: Annotated[int, Range(64 << 10, 1 << 30, "B")] | None = None,
    tuning: bool = True,
) -> Program:
    """Return the program that NCCL ``release`` would run on the fabric."""
    require_op("nccl-2-4", collective, OPS)
    require_commutative("nccl-2-4", collective)
    if collective.p == 1:
        return nothing("nccl-2-4", collective)
    if collective.op not in MODELLED:
        return _grouped(collective, topology, str(release), tuning=tuning)
    nodes = by_domain(collective, topology)
    system = system_of(collective, topology)
    chosen = decide(collective, system, str(release))
    if algorithm or protocol or channels:
        chosen = forced(chosen, system, str(release), algorithm=algorithm, protocol=protocol, channels=channels)
    chosen = dataclasses.replace(chosen, buffer_bytes=buffer_bytes or 0)
    made = build(collective, topology, nodes, chosen, system)
    knobs = {
        "algorithm": chosen.algorithm,
        "protocol": chosen.protocol,
        "channels": chosen.channels_used,
        "release": str(release),
    }
    named = dataclasses.replace(made, name="nccl-2-4", protocol=chosen.protocol, knobs=knobs)
    if not tuning:
        return named
    told = NcclOverride(algorithm, protocol, channels, buffer_bytes)
    made = tuned(named, chosen, system, nics_per_node(topology, nodes))
    said = told if told != NcclOverride() else None
    return _timed(made, topology, system, str(release), said) if has_form(collective.op, chosen.algorithm) else made


def _grouped(collective: Collective, topology: Topology | None, release: str, *, tuning: bool) -> Program:
    """Return an operation without a model as one group of messages."""
    cut = parts(collective) if collective.op == "all-to-all" else 1
    made = dataclasses.replace(grouped(collective, cut), name="nccl-2-4")
    if not tuning:
        return made
    nics = nics_per_node(topology, by_domain(collective, topology))
    system = system_of(collective, topology)
    made = dataclasses.replace(made, software=of_groups(collective.op, system, release, nics, cut))
    return _timed(made, topology, system, release, None) if collective.op in TIMED_GROUPED else made


def _timed(
    program: Program, topology: Topology | None, system: NcclSystem, release: str, told: NcclOverride | None
) -> Program:
    """Return a program with NCCL's own closed form; without where nothing says what its node is."""
    kind = node_type(program.collective, topology)
    if kind is None or is_2_4(release):
        return program
    over = "" if topology is None else topology.transport
    form = ClosedForm(program.collective.op, kind, system, release, told, over)
    return dataclasses.replace(program, software=dataclasses.replace(program.software, closed_form=form))


def decide(collective: Collective, system: NcclSystem, release: str) -> NcclChoice:
    """Return NCCL's choice; a size of 0 is decided as one element."""
    size = max(collective.size_bytes, 1)
    if is_2_4(release):
        return _decide_2_4(collective.op, size, system)
    return choose(collective.op, size, system, release)


def _decide_2_4(op: str, size_bytes: int, system: NcclSystem) -> NcclChoice:
    """Return the choice of 2.4: trees up to a size, LL up to another; its hop latencies are taken from 2.5."""
    channels = max(1, system.graphs.ring.channels)
    threshold = tree_threshold_bytes(
        system.nodes, system.ranks, channels, nvlink=system.graphs.ring.type_intra == "NVL"
    )
    protocol = "ll" if size_bytes <= LL_THRESHOLD_2_4 else "simple"
    picked = algorithm_2_4(op, size_bytes, threshold)
    return NcclChoice(op, size_bytes, picked, protocol, channels, 512, 0.0, channels, system.nodes, system.ranks, "2.5")


def build(
    collective: Collective, topology: Topology | None, nodes: list[list[int]], chosen: NcclChoice, system: NcclSystem
) -> Program:
    """Return the chosen algorithm as a program; a tree's channels are pairs of trees."""
    channels = max(1, chosen.channels_used)
    entrances = Entrances(nics_per_node(topology, nodes), system.graphs.ring.channels if system.mnnvl else 0)
    if chosen.algorithm in ("ring", "tree"):
        searched = system.graphs.of(chosen.algorithm).channels
        ordered = rank_orders(collective, topology, nodes, channels=channels, searched=searched, entrances=entrances)
    if chosen.algorithm == "ring":
        if collective.op in ("broadcast", "reduce"):
            return chains(collective, ordered, channels)
        return rings(collective, ordered, channels, loop_counts(collective, chosen, system))
    if chosen.algorithm == "tree":
        trees = _trees(nodes, max(1, channels // 2), system, ordered)
        return over_trees("tree", collective, trees, segments(collective, chosen, system, len(trees)))
    return _in_network(collective, topology, nodes, chosen, system)


def _in_network(
    collective: Collective, topology: Topology | None, nodes: list[list[int]], chosen: NcclChoice, system: NcclSystem
) -> Program:
    if chosen.algorithm == "nvls" and system.nodes > 1:
        return nvls_collnet(collective, topology)
    leading = system.graphs.nvls.channels if system.mnnvl and collective.op == "all-reduce" else None
    if chosen.algorithm == "nvls":
        return nvls(collective, topology, heads=leading)
    if chosen.algorithm == "nvls_tree":
        pieces = min(MOST_SEGMENTS, segments(collective, chosen, system, 2 * (leading or len(nodes[0]))))
        return nvls_tree(collective, topology, heads=leading, segments=pieces)
    plain = {"pat": pat, "collnet_chain": collnet_chain}
    if chosen.algorithm in plain:
        return plain[chosen.algorithm](collective, topology)
    if chosen.algorithm == "collnet_direct":
        heads = min(system.collnet_heads, *map(len, nodes)) if system.collnet_heads else None
        return collnet_direct(collective, topology, heads=heads)
    raise UsageError(f"NCCL has no algorithm '{chosen.algorithm}'", remedy="algorithm=ring")


def _trees(hosts: list[list[int]], pairs: int, system: NcclSystem, ordered: Orders) -> list[list[int]]:
    """Return the parents of both trees per channel pair; each pair enters the hosts at another GPU."""
    n, g = len(hosts), len(hosts[0])
    if not is_regular(hosts):
        return [_uneven(hosts, list(tree.parents)) for tree in double_tree(n)] * pairs
    trees = []
    for pair in range(pairs):
        position = ordered.chain(pair)
        for tree in rank_trees(n, g, system.graphs.tree.pattern):
            parents = [-1] * len(position)
            for child, parent in enumerate(tree.parents):
                parents[position[child]] = position[parent] if parent >= 0 else -1
            trees.append(parents)
    return trees


def _uneven(hosts: list[list[int]], over: list[int]) -> list[int]:
    """Return parents where hosts differ in size: a chain in each, its first place in the tree over hosts."""
    parents = [-1] * sum(map(len, hosts))
    for host, above in zip(hosts, over, strict=True):
        for parent, child in pairwise(host):
            parents[child] = parent
        parents[host[0]] = hosts[above][0] if above >= 0 else -1
    return parents
