"""Cuts that a machine's structure suggests: each rank, each host, the nodes attached to each switch, halves of each axis.

A *partition* puts every node into a part, or in none (-1). Ranks are put by hand; what lies between follows the ranks:
a node belongs to a part when all ranks nearest to it do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology

NOBODY = -1
MIXED = -2
MOST_ROUNDS = 64
FEW_LINKS = 1 << 18  # sources times links that are relaxed all at once
PREFIXES = 64  # up to so many ranks all runs 0..k are tried as well


@dataclass(frozen=True)
class Partition:
    """Parts over all nodes; ``kind`` says what a part is."""

    kind: str
    labels: np.ndarray  # part of each node, -1 for none
    topology: Topology

    @cached_property
    def parts(self) -> int:
        """Number of parts."""
        return int(self.labels.max(initial=-1)) + 1

    @cached_property
    def leaving(self) -> np.ndarray:
        """Bytes/s out of each part. float64 of shape (parts,)."""
        return self._crossing(self.topology.src, self.topology.dst)

    @cached_property
    def entering(self) -> np.ndarray:
        """Bytes/s into each part. float64 of shape (parts,)."""
        return self._crossing(self.topology.dst, self.topology.src)

    def _crossing(self, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        import numpy as np

        here, there = self.labels[inner], self.labels[outer]
        cross = (here >= 0) & (here != there)
        rate = goodput(self.topology)
        total = np.bincount(here[cross], weights=rate[cross], minlength=self.parts)
        for group in self.topology.groups:
            links = group.links[cross[group.links]]
            drawn = np.bincount(here[links], weights=rate[links], minlength=self.parts)
            total -= np.maximum(0.0, drawn - group.rate)
        return total

    def nodes(self, part: int) -> tuple[int, ...]:
        """Return a part's nodes."""
        import numpy as np

        return tuple(np.flatnonzero(self.labels == part).tolist())

    def members(self, part: int) -> tuple[str, ...]:
        """Return the names of a part's nodes."""
        import numpy as np

        return tuple(self.topology.label(int(node)) for node in np.flatnonzero(self.labels == part))


def goodput(topology: Topology) -> np.ndarray:
    """Return bytes/s of each link, less what it loses. float64 of shape (links,)."""
    return topology.rate if topology.loss is None else topology.rate * (1.0 - topology.loss)


def at_best(topology: Topology) -> Topology:
    """Return the machine without faults, each link as good as it ever is from the start on.

    A link that is dead from the start and never repaired has rate 0; one that a fault makes faster has that rate. What is
    impossible here is impossible whatever the times of the faults.
    """
    import numpy as np

    if not topology.faults:
        return topology
    healthy = {
        "rate_factor": np.ones(topology.n_links),
        "latency_s": -topology.latency_s,
        "loss": np.zeros(topology.n_links) if topology.loss is None else -topology.loss,
    }
    best = {field: values.copy() for field, values in healthy.items()}
    quick, seen = 1.0, set[tuple[str, int, str]]()
    for fault in sorted(topology.faults, key=lambda each: each.time_s):
        key = (fault.kind, fault.target, fault.field)
        if fault.kind == "rank":
            quick = max(quick, fault.value)
        elif fault.field in best:
            value = fault.value if fault.field == "rate_factor" else -fault.value
            first = fault.time_s <= 0 and key not in seen
            best[fault.field][fault.target] = value if first else max(value, best[fault.field][fault.target])
        seen.add(key)
    is_same = all((best[field] == healthy[field]).all() for field in healthy)
    return dataclasses.replace(
        topology,
        rate=topology.rate * best["rate_factor"],
        latency_s=-best["latency_s"],
        loss=-best["loss"],
        reduce_rate=topology.reduce_rate * quick,
        faults=(),
        is_symmetric=topology.is_symmetric and is_same,
    )


def partitions(topology: Topology) -> Iterator[Partition]:
    """Yield the partitions worth a try, finest first."""
    import numpy as np

    p = topology.n_ranks
    ranks = np.arange(p)
    alone = spread(topology, ranks)
    yield Partition("rank", alone, topology)
    if topology.hosts is not None and 1 < len(np.unique(topology.hosts)) < p:
        yield Partition("host", spread(topology, np.unique(topology.hosts, return_inverse=True)[1]), topology)
    stride = 1
    for axis, size in topology.axes:
        if 1 < stride < p:
            yield Partition(f"block below axis {axis}", spread(topology, ranks // stride), topology)
        if size > 1 and stride * size <= p:
            half = ranks // stride % size >= (size + 1) // 2
            yield Partition(f"half of axis {axis}", spread(topology, half.astype(np.int64)), topology)
        stride *= size
    yield from _by_switch(topology, alone)
    if p <= PREFIXES:
        for end in range(2, p - 1):
            yield Partition("run of ranks", spread(topology, (ranks >= end).astype(np.int64)), topology)


def _by_switch(topology: Topology, labels: np.ndarray) -> Iterator[Partition]:
    """Merge parts that have no way out but one and the same node, as ranks below one leaf have."""
    import numpy as np

    for _ in range(4):
        here, there = labels[topology.src], labels[topology.dst]
        out = (here >= 0) & (there != here)
        parts = int(labels.max(initial=-1)) + 1
        if not out.any() or (there[out] >= 0).any() or parts < 2:
            return
        least, most = np.full(parts, topology.n_nodes), np.full(parts, -1)
        np.minimum.at(least, here[out], topology.dst[out])
        np.maximum.at(most, here[out], topology.dst[out])
        if (least != most).any() or len(np.unique(least)) < 2:
            return
        labels = spread(topology, np.unique(least, return_inverse=True)[1][labels[: topology.n_ranks]])
        yield Partition("switch", labels, topology)


def spread(topology: Topology, ranks: np.ndarray) -> np.ndarray:
    """Return the part of every node: that of the ranks nearest to it, none (-1) where two parts are equally near.

    int64 of shape (nodes,).
    """
    import numpy as np

    labels = np.full(topology.n_nodes, NOBODY, np.int64)
    labels[: topology.n_ranks] = ranks
    ends = np.concatenate((topology.src, topology.dst)), np.concatenate((topology.dst, topology.src))
    for _ in range(MOST_ROUNDS):
        news = (labels[ends[0]] != NOBODY) & (labels[ends[1]] == NOBODY)
        if not news.any():
            break
        said, at = labels[ends[0][news]], ends[1][news]
        least, most = np.full(topology.n_nodes, np.iinfo(np.int64).max), np.full(topology.n_nodes, MIXED)
        np.minimum.at(least, at, said)
        np.maximum.at(most, at, said)
        labels[at] = np.where(least[at] == most[at], most[at], MIXED)
    return np.maximum(labels, NOBODY)


def distances(topology: Topology, sources: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the shortest path from each source to each node over links that work; inf where there is none.

    ``lengths`` are per link and not negative. float64 of shape (sources, nodes), in the unit of ``lengths``.
    """
    import numpy as np

    works = np.flatnonzero(topology.rate > 0)
    if len(sources) * len(works) > FEW_LINKS:
        return _from_each(topology, sources, lengths, works)
    order = works[np.argsort(topology.dst[works], kind="stable")]
    src, cost = topology.src[order], lengths[order]
    ends, starts = np.unique(topology.dst[order], return_index=True)
    distance = np.full((len(sources), topology.n_nodes), np.inf)
    distance[np.arange(len(sources)), sources] = 0.0
    while len(order):
        offered = np.minimum(distance[:, ends], np.minimum.reduceat(distance[:, src] + cost, starts, axis=1))
        if (offered == distance[:, ends]).all():
            break
        distance[:, ends] = offered
    return distance


def _from_each(topology: Topology, sources: np.ndarray, lengths: np.ndarray, works: np.ndarray) -> np.ndarray:
    """Search from one source after the other; nodes with one neighbour pass nothing on and come last."""
    import numpy as np

    ends = np.unique(np.stack((topology.src[works], topology.dst[works])), axis=1)
    neighbours = np.bincount(ends[0], minlength=topology.n_nodes)
    last = (neighbours <= 1) & (np.bincount(ends[1], minlength=topology.n_nodes) <= 1)
    last[sources] = False
    into = works[last[topology.dst[works]]]
    order = works[~last[topology.src[works]] & ~last[topology.dst[works]]]
    order = order[np.argsort(topology.src[order], kind="stable")]
    starts = np.searchsorted(topology.src[order], np.arange(topology.n_nodes + 1))
    distance = np.stack([_from_one(int(source), topology.dst[order], lengths[order], starts) for source in sources])
    if len(into):
        into = into[np.argsort(topology.dst[into], kind="stable")]
        reached, firsts = np.unique(topology.dst[into], return_index=True)
        distance[:, reached] = np.minimum.reduceat(distance[:, topology.src[into]] + lengths[into], firsts, axis=1)
    return distance


def _from_one(source: int, far: np.ndarray, cost: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Relax only the links of nodes that came nearer; ``starts`` are those of each node among ``far`` and ``cost``."""
    import numpy as np

    distance = np.full(len(starts) - 1, np.inf)
    distance[source], front = 0.0, np.array([source])
    while len(front):
        count = starts[front + 1] - starts[front]
        links = np.arange(count.sum()) + np.repeat(starts[front] - np.cumsum(count) + count, count)
        offered, there = np.repeat(distance[front], count) + cost[links], far[links]
        nearer = offered < distance[there]
        np.minimum.at(distance, there[nearer], offered[nearer])
        came = np.zeros(len(distance), bool)
        came[there[nearer]] = True
        front = np.flatnonzero(came)
    return distance
