"""Which ranks can pass data straight on to which, and what each such arc costs the machine: the graph that trees grow on.

An arc is a pair of ranks of a group whose route meets no third rank of it. Between hosts only the arcs count that have the least
latency from a rank to another host, if all hosts have as many ranks of the group: where each GPU has a NIC of its own those stay
within a rail. What an arc uses are links and the capacities that they share, here *resources* with their rates; where turns of
the machine (``symmetry``) keep it as it is, resources of one orbit count together.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import goodput
from ringwright.bounds.symmetry import Turns, turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ringwright.model.topology import Topology

MOST_PAIRS = 1 << 20  # whose routes are looked up one by one
MOST_ACROSS = 32  # ranks between which all arcs count where hosts have unlike many of them
_NEAR = 1.0001  # latencies that differ by less are equal


@dataclass(frozen=True)
class Arcs:
    """Arcs between the places 0..p-1 of a group, and what a byte over each of them uses.

    Parameters
    ----------
    p
        Ranks of the group.
    src, dst
        Ends of each arc as places, int64 of shape (arcs,).
    starts, resources
        Resources on the route of arc i: ``resources[starts[i]:starts[i + 1]]``, int64.
    rate
        Bytes/s of each resource, float64 of shape (resources,): of all its members together, where it is an orbit.
    latency_s
        Seconds of each arc, float64 of shape (arcs,).
    members, busy_s
        How many links or capacities a resource stands for, and seconds that each is busy with a message besides its bytes
        (where links block): int64 and float64 of shape (resources,).
    capacities
        Which link, or behind all links which shared capacity, each resource is (an orbit with a symmetry): int64 of shape
        (resources,).
    symmetry
        Turns of the machine, by which resources count together; None: each root is a case of its own.
    reversed
        Whether data are to flow from ``dst`` to ``src`` (trees that collect).
    """

    p: int
    src: np.ndarray
    dst: np.ndarray
    starts: np.ndarray
    resources: np.ndarray
    rate: np.ndarray
    latency_s: np.ndarray
    members: np.ndarray
    busy_s: np.ndarray
    capacities: np.ndarray
    symmetry: Turns | None = None
    reversed: bool = False

    @property
    def count(self) -> int:
        """Arcs."""
        return len(self.src)

    def turned_round(self) -> Arcs:
        """Return the arcs from the receiver's side: trees on them collect instead of spread."""
        return dataclasses.replace(self, src=self.dst, dst=self.src, reversed=not self.reversed)

    def digest(self) -> bytes:
        """Return a hash of all that trees on these arcs depend on."""
        import numpy as np

        digest = hashlib.sha256(bytes([self.reversed]))
        ends, resources = (self.src, self.dst), (self.starts, self.resources, self.rate, self.members)
        for array in (*ends, *resources, self.latency_s, self.busy_s):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(repr(None if self.symmetry is None else self.symmetry.axes).encode())
        return digest.digest()

    def back(self) -> np.ndarray:
        """Return the arc the other way of each arc, -1 where there is none. int64 of shape (arcs,)."""
        import numpy as np

        number = {ends: arc for arc, ends in enumerate(zip(self.src.tolist(), self.dst.tolist(), strict=True))}
        turned = zip(self.dst.tolist(), self.src.tolist(), strict=True)
        return np.array([number.get(ends, -1) for ends in turned], np.int64)

    def there_and_back(self) -> Arcs | None:
        """Return the arcs with what the arc back uses too: for trees that collect and spread; None where one has no way back."""
        import numpy as np

        back = self.back()
        if (back < 0).any():
            return None
        owner = np.repeat(np.arange(self.count), np.diff(self.starts))
        owner = np.concatenate((owner, back[owner]))
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(self.count + 1))
        return dataclasses.replace(self, starts=starts, resources=np.tile(self.resources, 2)[order])

    def cost(self, prices: np.ndarray) -> np.ndarray:
        """Return what a byte over each arc costs at a price a byte of each resource.

        float64 of shape (..., arcs), for prices of shape (..., resources).
        """
        import numpy as np

        owner = np.repeat(np.arange(self.count), np.diff(self.starts))
        rows = np.atleast_2d(prices)
        costs = np.stack([np.bincount(owner, weights=row[self.resources], minlength=self.count) for row in rows])
        return costs if prices.ndim > 1 else costs[0]


def arcs(topology: Topology, group: Sequence[int], *, turning: bool = True) -> Arcs:
    """Return the arcs between the ranks of a group on a machine as it is now (``topology.at(0.0)`` for one with faults).

    ``turning``: count resources by orbit where the machine turns into itself.
    """
    import numpy as np

    ranks = np.asarray(group, np.int64)
    whole = len(ranks) == topology.n_ranks and bool((ranks == np.arange(topology.n_ranks)).all())
    symmetry = turns(topology) if whole and turning else None
    src, dst = _candidates(topology, ranks, symmetry)
    known = np.full(topology.n_nodes, -1, np.int64)
    known[ranks] = np.arange(len(ranks))
    starts, links = topology.routes(src, dst)
    owner = np.repeat(np.arange(len(src)), np.diff(starts))
    rates = goodput(topology)
    through = topology.dst[links]
    bad = np.zeros(len(src), bool)
    bad[owner[(known[through] >= 0) & (through != dst[owner])]] = True
    bad[owner[rates[links] <= 0]] = True
    latency_s = np.bincount(owner, weights=topology.latency_s[links], minlength=len(src))
    if len(ranks) > MOST_ACROSS or _as_many_a_host(topology, ranks):
        bad |= _beside_rails(topology, src, dst, latency_s + np.diff(starts) * 1e-12, bad)
    made = _made(topology, ranks, (src, dst), (starts, links), ~bad)
    return made if symmetry is None else _by_orbits(made, symmetry, _orbits(topology, symmetry)[made.capacities])


def arcs_of(topology: Topology, group: Sequence[int], src: np.ndarray, dst: np.ndarray) -> Arcs:
    """Return the arcs between these pairs of ranks of a group, none left out and none added, each resource by itself.

    ``src`` and ``dst``: ranks of the machine, int64 of one shape (arcs,).
    """
    import numpy as np

    every = np.ones(len(src), bool)
    return _made(topology, np.asarray(group, np.int64), (src, dst), topology.routes(src, dst), every)


def _made(
    topology: Topology,
    ranks: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    routes: tuple[np.ndarray, np.ndarray],
    keep: np.ndarray,
) -> Arcs:
    """Return the arcs between the pairs that are kept."""
    import numpy as np

    known = np.full(topology.n_nodes, -1, np.int64)
    known[ranks] = np.arange(len(ranks))
    owner = np.repeat(np.arange(len(keep)), np.diff(routes[0]))
    latency_s = np.bincount(owner, weights=topology.latency_s[routes[1]], minlength=len(keep))
    starts, resources, used = _resources(topology, *routes, keep)
    rate = np.concatenate((goodput(topology), [group.rate for group in topology.groups]))[used]
    busy_s = np.concatenate((topology.latency_s, np.zeros(len(topology.groups))))[used]
    src, dst = (known[each[keep]] for each in ends)
    single = np.ones(len(used), np.int64)
    return Arcs(len(ranks), src, dst, starts, resources, rate, latency_s[keep], single, busy_s, used)


def together(several: Sequence[Arcs]) -> list[Arcs]:
    """Return arcs of several groups on one machine, without symmetry, that name resources by the same numbers."""
    import numpy as np

    every = np.concatenate([each.capacities for each in several])
    union, first = np.unique(every, return_index=True)
    rate, busy_s = (np.concatenate([getattr(each, name) for each in several])[first] for name in ("rate", "busy_s"))
    members = np.ones(len(union), np.int64)
    return [
        dataclasses.replace(
            each,
            resources=np.searchsorted(union, each.capacities)[each.resources],
            rate=rate,
            members=members,
            busy_s=busy_s,
            capacities=union,
        )
        for each in several
    ]


def _candidates(topology: Topology, ranks: np.ndarray, symmetry: Turns | None) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of ranks among which all arcs are: neighbours where ranks are joined directly, else all pairs."""
    import numpy as np

    n, p = topology.n_ranks, len(ranks)
    if topology.n_nodes == n and p == n:
        pairs = np.unique(topology.src.astype(np.int64) * n + topology.dst)
        return pairs // n, pairs % n
    if p * (p - 1) <= MOST_PAIRS // 4 or symmetry is None or symmetry.table is not None:
        src, dst = (each.ravel() for each in np.meshgrid(ranks, ranks, indexing="ij"))
        return src[src != dst], dst[src != dst]
    first = arcs_of_first(topology)
    every = np.arange(n)
    return np.repeat(every, len(first)), symmetry.turned(first[None, :], every[:, None]).ravel()


def arcs_of_first(topology: Topology) -> np.ndarray:
    """Return the ranks to which rank 0 has an arc on a machine that looks the same from all. int64 of shape (arcs,), rising."""
    import numpy as np

    n = topology.n_ranks
    src, dst = np.zeros(n - 1, np.int64), np.arange(1, n)
    starts, links = topology.routes(src, dst)
    owner = np.repeat(np.arange(n - 1), np.diff(starts))
    bad = np.zeros(n - 1, bool)
    bad[owner[(topology.dst[links] < n) & (topology.dst[links] != dst[owner])]] = True
    latency_s = np.bincount(owner, weights=topology.latency_s[links], minlength=n - 1) + np.diff(starts) * 1e-12
    bad |= _beside_rails(topology, src, dst, latency_s, bad)
    return dst[~bad]


def _as_many_a_host(topology: Topology, ranks: np.ndarray) -> bool:
    """Return whether each host has as many of the ranks: else a rank has to reach others than its like on another host too."""
    import numpy as np

    if topology.hosts is None:
        return True
    counts = np.unique(np.asarray(topology.hosts)[ranks], return_counts=True)[1]
    return bool((counts == counts[0]).all())


def _beside_rails(
    topology: Topology, src: np.ndarray, dst: np.ndarray, latency_s: np.ndarray, bad: np.ndarray
) -> np.ndarray:
    """Return which pairs of ranks on two hosts have a nearer rank on the other host. bool of the shape of ``src``."""
    import numpy as np

    if topology.hosts is None:
        return np.zeros(len(src), bool)
    hosts = np.asarray(topology.hosts, np.int64)
    key = src * (int(hosts.max()) + 1) + hosts[dst]
    best = np.full(int(key.max(initial=0)) + 1, np.inf)
    np.minimum.at(best, key[~bad], latency_s[~bad])
    beside: np.ndarray = (hosts[src] != hosts[dst]) & (latency_s > best[key] * _NEAR)
    return beside


def _resources(
    topology: Topology, starts: np.ndarray, links: np.ndarray, keep: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return starts and resources of the arcs that are kept, and what each resource is: a link, then a shared capacity."""
    import numpy as np

    owner = np.repeat(np.arange(len(keep)), np.diff(starts))
    mine = keep[owner]
    owner, links = (np.cumsum(keep) - 1)[owner[mine]], links[mine]
    if topology.groups:
        first, groups = topology.memberships
        each = np.diff(first)[links]
        at = np.repeat(first[links], each) + np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
        owner = np.concatenate((owner, np.repeat(owner, each)))
        links = np.concatenate((links, topology.n_links + groups[at]))
        order = np.argsort(owner, kind="stable")
        owner, links = owner[order], links[order]
    used, number = np.unique(links, return_inverse=True)
    return np.searchsorted(owner, np.arange(int(keep.sum()) + 1)), number.ravel(), used


def _orbits(topology: Topology, symmetry: Turns) -> np.ndarray:
    """Return a number for each link and shared capacity, equal where turns may take one to the other. int64."""
    import numpy as np

    kinds: dict[tuple[float, bytes], int] = {}
    first = int(symmetry.links.max(initial=-1)) + 1
    shared = [
        first + kinds.setdefault((group.rate, np.sort(symmetry.links[group.links]).tobytes()), len(kinds))
        for group in topology.groups
    ]
    return np.concatenate((symmetry.links, np.array(shared, np.int64)))


def _by_orbits(made: Arcs, symmetry: Turns, orbits: np.ndarray) -> Arcs:
    """Return the arcs with resources counted by orbit, where the turns take arcs to arcs and routes to routes; else as they are.

    Seen from the resources: all images of an arc are arcs, and together they use each member of an orbit equally often.
    """
    import numpy as np

    orbits = np.unique(orbits, return_inverse=True)[1].ravel()
    by = np.unique(symmetry.kinds(made.src, made.dst), return_inverse=True)[1].ravel()
    if (np.bincount(by) != symmetry.order).any() or not _even(made, orbits, by):
        return made
    members = np.bincount(orbits)
    return dataclasses.replace(
        made,
        resources=orbits[made.resources],
        rate=np.bincount(orbits, weights=made.rate),
        members=members,
        busy_s=np.bincount(orbits, weights=made.busy_s) / members,
        capacities=np.unique(orbits),
        symmetry=symmetry,
    )


def _even(made: Arcs, orbits: np.ndarray, by: np.ndarray) -> bool:
    """Return whether the images of each arc together use all resources of an orbit equally often."""
    import numpy as np

    n, n_orbits = len(made.rate), int(orbits.max(initial=0)) + 1
    arc = np.repeat(by, np.diff(made.starts))
    kinds, uses = np.unique(arc * n + made.resources, return_counts=True)
    key = kinds // n * n_orbits + orbits[kinds % n]
    order = np.argsort(key, kind="stable")
    key, uses = key[order], uses[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    members = np.bincount(orbits)[key[first] % n_orbits]
    whole = np.diff([*first, len(key)]) == members
    return bool((whole & (np.maximum.reduceat(uses, first) == np.minimum.reduceat(uses, first))).all())
