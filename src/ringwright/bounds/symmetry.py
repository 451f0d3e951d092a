"""In which ways a machine looks the same: permutations of its nodes that keep every link, shared capacity and fault.

What a fabric declares are its axes: turning all ranks by one along an axis should change nothing. Here that is checked on the
arrays: a turn of the ranks is carried on to the other nodes (a switch goes where its neighbours go), then links must meet links
of the same rate, latency, class and loss, and so must shared capacities and faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.bounds.automorphisms import closure, free_group
from ringwright.model.topology import RANK

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class Turns:
    """A group of turns of all ranks of which each but the first moves every rank: two ranks have one turn at most between them.

    Parameters
    ----------
    axes
        Name and size of each axis along which ranks turn, the first fastest; none where ``table`` lists the turns.
    links
        Orbit of each link, int64 of shape (links,): links of one orbit are turned into each other.
    table
        Where each turn takes each rank, int64 of shape (turns, ranks), or None: turn k takes rank 0 to rank k along the axes.
    """

    axes: tuple[tuple[str, int], ...]
    links: np.ndarray
    table: np.ndarray | None = None

    @property
    def order(self) -> int:
        """How many turns there are."""
        return math.prod(size for _, size in self.axes) if self.table is None else len(self.table)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """What one step along each axis adds to a rank's number."""
        return tuple(math.prod(size for _, size in self.axes[:at]) for at in range(len(self.axes)))

    @cached_property
    def bases(self) -> np.ndarray:
        """One rank of each orbit, of which turns make the others. int64 of shape (orbits,), rising."""
        import numpy as np

        return np.zeros(1, np.int64) if self.table is None else np.unique(self.table.min(axis=0))

    def turned(self, ranks: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Return the ranks to which turn ``by`` takes ranks: int64 of their broadcast shape."""
        import numpy as np

        ranks, by = np.asarray(ranks, np.int64), np.asarray(by, np.int64)
        if self.table is not None:
            there: np.ndarray = self.table[by, ranks]
            return there
        total = np.zeros(np.broadcast_shapes(ranks.shape, by.shape), np.int64)
        for (_, size), weight in zip(self.axes, self.weights, strict=True):
            total += (ranks // weight + by // weight) % size * weight
        return total

    def kinds(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return a number for each pair of ranks, equal for those that turns take to each other. int64 of shape (pairs,)."""
        import numpy as np

        n = math.prod(size for _, size in self.axes) if self.table is None else self.table.shape[1]
        if self.table is not None:
            back = self.table[:, src] * n + self.table[:, dst]
            least: np.ndarray = back.min(axis=0)
            return least
        total = np.zeros(len(src), np.int64)
        for (_, size), weight in zip(self.axes, self.weights, strict=True):
            total += (dst // weight - src // weight) % size * weight
        return total


def turns(topology: Topology) -> Turns | None:
    """Return the turns along the topology's axes where all of them keep the machine as it is, else those that a search finds.

    None where there are none.
    """
    return _declared(topology) or _sought(topology)


def _declared(topology: Topology) -> Turns | None:
    import numpy as np

    if math.prod(size for _, size in topology.axes) != topology.n_ranks or topology.n_ranks < 2:
        return None
    orbit = np.arange(topology.n_links)
    for ranks in _generators(topology):
        nodes = carried_on(topology, ranks)
        links = None if nodes is None else link_map(topology, nodes)
        if links is None:
            return None
        orbit = _joined(orbit, links)
    return Turns(topology.axes, np.unique(orbit, return_inverse=True)[1].ravel())


def _sought(topology: Topology) -> Turns | None:
    import numpy as np

    orbit, kept = np.arange(topology.n_links), []
    for nodes in free_group(topology):
        links = link_map(topology, nodes)
        if links is not None:
            kept.append(nodes)
            orbit = _joined(orbit, links)
    table = closure(kept, topology.n_ranks) if kept else None
    if table is None:
        return None
    return Turns((), np.unique(orbit, return_inverse=True)[1].ravel(), table)


def _generators(topology: Topology) -> Iterator[np.ndarray]:
    """Yield for each axis the ranks that a turn by one takes ranks 0, 1, ... to."""
    import numpy as np

    rank, weight = np.arange(topology.n_ranks), 1
    for _, size in topology.axes:
        if size > 1:
            digit = rank // weight % size
            yield rank + ((digit + 1) % size - digit) * weight
        weight *= size


def carried_on(topology: Topology, ranks: np.ndarray) -> np.ndarray | None:
    """Return where every node goes when ranks go to ``ranks``, int64 of shape (nodes,); None where no node can answer to one.

    A node goes to one that has the images of its neighbours for neighbours, over links of the same rates. Several that
    have the same neighbours are alike, and go in order.
    """
    import numpy as np

    image = np.full(topology.n_nodes, -1, np.int64)
    image[: topology.n_ranks] = ranks
    known = np.zeros(topology.n_nodes, bool)
    known[: topology.n_ranks] = topology.kinds[: topology.n_ranks] == RANK
    ends = np.concatenate((topology.src, topology.dst)).astype(np.int64)
    others = np.concatenate((topology.dst, topology.src)).astype(np.int64)
    marks = np.unique(np.stack((topology.rate, topology.latency_s)), axis=1, return_inverse=True)[1].ravel()
    mark = np.concatenate((2 * marks, 2 * marks + 1))
    while not known.all():
        seen = known[others] & ~known[ends]
        if not seen.any():
            return None  # nodes that no rank reaches
        fresh = np.unique(ends[seen])
        before = _signatures(ends[seen], image[others[seen]], mark[seen], topology)
        after = _signatures(ends[seen], others[seen], mark[seen], topology)
        by_after: dict[bytes, list[int]] = {}
        for node in fresh.tolist():
            by_after.setdefault(after[node], []).append(node)
        for node in fresh.tolist():
            alike = by_after.get(before[node])
            if not alike:
                return None
            image[node] = alike.pop(0)
        known[fresh] = True
    return image


def _signatures(ends: np.ndarray, others: np.ndarray, mark: np.ndarray, topology: Topology) -> dict[int, bytes]:
    """Return for each end its kind and sorted neighbours with the marks of the links to them."""
    import numpy as np

    order = np.lexsort((mark, others, ends))
    ends, table = ends[order], np.stack((others[order], mark[order]), axis=1)
    first = np.flatnonzero(np.diff(ends, prepend=-1))
    bounds = [*first.tolist(), len(ends)]
    nodes = ends[first].tolist()
    return {
        node: bytes([int(topology.kinds[node])]) + table[start:stop].tobytes()
        for node, start, stop in zip(nodes, bounds, bounds[1:], strict=False)
    }


def link_map(topology: Topology, nodes: np.ndarray) -> np.ndarray | None:
    """Return the link that each link becomes when nodes go to ``nodes``, int64 of shape (links,); None where one has no image.

    Images have the same rate, latency, class, loss and faults, and draw on the images of the same shared capacities.
    """
    import numpy as np

    key = topology.src.astype(np.int64) * topology.n_nodes + topology.dst
    image = nodes[topology.src] * topology.n_nodes + nodes[topology.dst]
    loss = np.zeros(topology.n_links) if topology.loss is None else topology.loss
    facts = np.stack((topology.rate, topology.latency_s, topology.link_class.astype(float), loss, _faults(topology)))
    here, there = np.lexsort((*facts, image)), np.lexsort((*facts, key))
    if not np.array_equal(image[here], key[there]) or not np.array_equal(facts[:, here], facts[:, there]):
        return None
    links = np.empty(topology.n_links, np.int64)
    links[here] = there
    shared = {(group.rate, np.sort(group.links).tobytes()) for group in topology.groups}
    turned = {
        (group.rate, np.sort(links[group.links]).astype(group.links.dtype).tobytes()) for group in topology.groups
    }
    return links if shared == turned else None


def _faults(topology: Topology) -> np.ndarray:
    """Return a number for each link that is 0 without faults, and equal where the same happens at the same time."""
    import numpy as np

    happens: dict[int, list[tuple[float, str, float]]] = {}
    for fault in topology.faults:
        if fault.kind == "link":
            happens.setdefault(fault.target, []).append((fault.time_s, fault.field, fault.value))
        else:
            for link in np.flatnonzero((topology.src == fault.target) | (topology.dst == fault.target)).tolist():
                happens.setdefault(link, []).append((fault.time_s, fault.field, fault.value))
    numbers: dict[str, int] = {}
    marks = np.zeros(topology.n_links)
    for link, what in sorted(happens.items()):
        marks[link] = numbers.setdefault(repr(sorted(what)), len(numbers) + 1)
    return marks


def _joined(orbit: np.ndarray, links: np.ndarray) -> np.ndarray:
    """Return the orbits after joining each link with its image: of each its least link."""
    import numpy as np

    while True:
        least = np.minimum(orbit, orbit[links])
        np.minimum.at(least, links, orbit)
        np.minimum.at(least, orbit, least)
        least = least[least]
        if np.array_equal(least, orbit):
            return orbit
        orbit = least
