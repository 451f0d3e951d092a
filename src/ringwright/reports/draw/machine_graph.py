"""A machine as a picture shows it: its nodes, or one for each host and for switches that are alike, and what joins them.

A pair of nodes is one line, whatever links lie between them: its capacity is that of the better direction, its load that of the
busier one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.topology import NIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringwright.engines.result import Run
    from ringwright.model.topology import Topology

MOST_NAMED = 8  # hosts whose names stand beside their ranks


@dataclass
class ShownNode:
    """One node of the picture: nodes of the machine that it stands for, its kind (rank, nic, switch, host), host, and depth.

    ``depth`` counts links from the nearest rank; ``is_cut``: of the set that proves the bound, or a host with some of it.
    """

    nodes: list[int]
    kind: str
    label: str
    host: int  # -1: between hosts
    depth: int
    is_cut: bool = False


@dataclass
class ShownPair:
    """Links between two nodes of the picture, both directions: capacity, use and what is wrong with them."""

    ends: tuple[int, int]
    rate: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})  # by direction, True: as ``ends``
    healthy: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    size_bytes: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    links: int = 0
    crosses: bool = False

    @property
    def capacity(self) -> float:
        """Bytes/s of the better direction, as it was before faults."""
        return max(self.healthy.values())

    @property
    def is_ill(self) -> bool:
        """Whether a fault takes some of its rate."""
        return any(self.rate[forward] < 0.9999 * self.healthy[forward] for forward in (True, False))

    def load(self, time_s: float) -> float:
        """Return the share of a time in which the busier direction passes bytes."""
        if time_s <= 0:
            return 0.0
        shares = [self.size_bytes[forward] / (rate * time_s) for forward, rate in self.rate.items() if rate > 0]
        return min(max(shares, default=0.0), 1.0)


@dataclass
class ShownMachine:
    """The nodes and pairs of a picture."""

    nodes: list[ShownNode]
    pairs: list[ShownPair]
    hosts: Mapping[int, str]
    in_rows: bool = True  # nodes stand in rows, so that ranks of a host are side by side

    @property
    def has_chords(self) -> bool:
        """Whether links join ranks directly that stand side by side."""
        return any(self.is_chord(pair) for pair in self.pairs)

    def is_chord(self, pair: ShownPair) -> bool:
        """Whether a pair is two ranks that stand side by side."""
        here, there = (self.nodes[end] for end in pair.ends)
        return self.in_rows and here.kind == there.kind == "rank" and here.host == there.host


def depths(topology: Topology) -> np.ndarray:
    """Return how many links each node is away from the nearest rank, int64 of shape (nodes,)."""
    far = np.full(topology.n_nodes, topology.n_nodes)
    far[: topology.n_ranks] = 0
    for _ in range(topology.n_nodes):
        before = far.copy()
        np.minimum.at(far, topology.dst, before[topology.src] + 1)
        np.minimum.at(far, topology.src, before[topology.dst] + 1)
        if (far == before).all():
            break
    return far


def hosts_of_nodes(topology: Topology) -> np.ndarray:
    """Return the host of each node, -1 for what lies between hosts: int64 of shape (nodes,).

    A node that is no rank belongs to the host of all nodes through which ranks come to it on the shortest path. Ranks of
    machines without hosts are apart.
    """
    host = np.full(topology.n_nodes, -1)
    if topology.hosts is None or int(topology.hosts.max()) + 1 == topology.n_ranks:
        return host
    host[: topology.n_ranks] = topology.hosts
    far = depths(topology)
    for depth in range(1, int(far[far < topology.n_nodes].max()) + 1):
        for node in np.flatnonzero(far == depth).tolist():
            near = np.concatenate((topology.src[topology.dst == node], topology.dst[topology.src == node]))
            given = set(host[near[far[near] < depth]].tolist())
            host[node] = given.pop() if len(given) == 1 else -1
    return host


def shown(topology: Topology, run: Run | None, cut: Sequence[int], *, folded: bool) -> ShownMachine:
    """Return the machine node by node, or ``folded`` by hosts and by switches that are alike."""
    host, far = hosts_of_nodes(topology), depths(topology)
    machine = _folded(topology, host, far, set(cut)) if folded else _whole(topology, host, far, set(cut))
    _join(machine, topology, run, set(cut))
    return machine


def only(machine: ShownMachine, keep: Callable[[ShownNode], bool]) -> ShownMachine:
    """Return some nodes of a machine, what they are joined with, and the pairs between a kept node and another."""
    kept = [keep(node) for node in machine.nodes]
    pairs = [pair for pair in machine.pairs if any(kept[end] for end in pair.ends)]
    there = sorted({end for pair in pairs for end in pair.ends} | {at for at, is_kept in enumerate(kept) if is_kept})
    number = {end: at for at, end in enumerate(there)}
    for pair in pairs:
        pair.ends = number[pair.ends[0]], number[pair.ends[1]]
    return ShownMachine([machine.nodes[at] for at in there], pairs, machine.hosts)


def _whole(topology: Topology, host: np.ndarray, far: np.ndarray, cut: set[int]) -> ShownMachine:
    nodes = [
        ShownNode(
            [node],
            _kind(topology, node),
            str(node) if node < topology.n_ranks else topology.label(node).rpartition("/")[2],
            int(host[node]),
            int(far[node]),
            node in cut,
        )
        for node in range(topology.n_nodes)
    ]
    return ShownMachine(nodes, [], _host_names(topology, host))


def _kind(topology: Topology, node: int) -> str:
    return "rank" if node < topology.n_ranks else "nic" if int(topology.kinds[node]) == NIC else "switch"


def _host_names(topology: Topology, host: np.ndarray) -> dict[int, str]:
    names: dict[int, str] = {}
    for node in range(topology.n_ranks):
        if host[node] >= 0:
            prefix, slash, _ = topology.label(node).rpartition("/")
            names.setdefault(int(host[node]), prefix if slash else f"host {int(host[node])}")
    return names


def _folded(topology: Topology, host: np.ndarray, far: np.ndarray, cut: set[int]) -> ShownMachine:
    """Make one node of each host (without hosts: of ranks with the same neighbours) and of switches with the same neighbours."""
    beside = _neighbours(topology)
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for node in range(topology.n_nodes):
        if host[node] >= 0:
            alike["host", int(host[node])].append(node)
        elif node < topology.n_ranks:
            alike["ranks", tuple(sorted(beside[node]))].append(node)
    owner = {node: key for key, nodes in alike.items() for node in nodes}
    for node in range(topology.n_nodes):
        if node not in owner:
            near = {str(owner.get(each, ("switches", int(far[each])))) for each in beside[node]}
            alike["switches", int(far[node]), tuple(sorted(near))].append(node)
    names = _host_names(topology, host)
    nodes = []
    for mine in alike.values():
        ranks = [node for node in mine if node < topology.n_ranks]
        first = topology.label(mine[0]).rpartition("/")[2]
        if ranks:
            name = names.get(int(host[mine[0]]), "")
            label = f"{name} ranks {spans(ranks)}".strip() if len(names) <= MOST_NAMED else spans(ranks)
        else:
            label = first if len(mine) == 1 else f"{len(mine)} like {first}"
        is_cut = bool(cut & set(mine))
        nodes.append(
            ShownNode(mine, "host" if ranks else "switch", label, -1, 0 if ranks else int(far[mine[0]]), is_cut)
        )
    return ShownMachine(nodes, [], {})


def spans(numbers: Sequence[int]) -> str:
    """Return sorted numbers in words: ``0-7, 16``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _neighbours(topology: Topology) -> list[set[int]]:
    beside: list[set[int]] = [set() for _ in range(topology.n_nodes)]
    for here, there in zip(topology.src.tolist(), topology.dst.tolist(), strict=True):
        beside[here].add(there)
        beside[there].add(here)
    return beside


def _join(machine: ShownMachine, topology: Topology, run: Run | None, cut: set[int]) -> None:
    """Add up the links between the nodes of the picture."""
    owner = {node: at for at, each in enumerate(machine.nodes) for node in each.nodes}
    rate = topology.at(0.0).rate if topology.faults else topology.rate
    carried = np.zeros(topology.n_links) if run is None or not len(run.bytes) else run.bytes[: topology.n_links]
    known: dict[tuple[int, int], ShownPair] = {}
    for link, (src, dst) in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
        here, there = owner[src], owner[dst]
        if here == there:
            continue
        pair = known.setdefault((min(here, there), max(here, there)), ShownPair((min(here, there), max(here, there))))
        forward = here < there
        pair.rate[forward] += float(rate[link])
        pair.healthy[forward] += float(topology.rate[link])
        pair.size_bytes[forward] += float(carried[link])
        pair.links += 1
        pair.crosses |= (src in cut) != (dst in cut)
    machine.pairs.extend(known.values())
