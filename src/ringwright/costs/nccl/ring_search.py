"""Which GPU follows which in the rings of a host whose GPUs are joined link by link, as NCCL's search finds it.

A channel takes one unit of every link it crosses, so that rings are edge-disjoint Hamiltonian cycles of the host's link
graph, and a link of double width carries two. The search goes depth first, ring after ring: from a GPU to the neighbour with
the widest link, of equal ones to the next in number. It stops at as many rings as the graph's smallest cut lets through, or
when its steps are used up, and keeps the most rings it has seen. Where links do not divide evenly into rings, as those of
four GPUs with one link each, channels of half the speed find two places on every link.

Between hosts a channel is a path: it enters at a GPU of its NIC, passes all others, and leaves at another one.

Source: ``src/graph/search.cc`` of NVIDIA/nccl (order of the search, limit of steps). It finds the rings that logs print of a
DGX-1V (NCCL 2.27) and of four V100 with two links a pair (NCCL 2.7), channel by channel; for eight MI300X, whose rings are a
table in RCCL, it finds others that use the links alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from math import gcd

from ringwright.costs.nccl.node_types import SEARCH_CHANNELS_MAX

Widths = tuple[tuple[int, ...], ...]  # units of the links from each GPU to each GPU of a host
Rings = tuple[tuple[int, ...], ...]  # per ring, the GPUs of a host in its order

MOST_GPUS = 16  # of a host that is searched
STEPS = 1 << 12
SPLITS = (1, 2, 4)  # channels that share a unit


@lru_cache(maxsize=256)
def closed_rings(widths: Widths) -> Rings:
    """Return the rings of a host on its own, each from GPU 0 on; none where no ring passes all GPUs.

    ``widths[i][j]`` is the number of links from GPU i to GPU j.
    """
    n, reduced = len(widths), _reduced(widths)
    if not 2 <= n <= MOST_GPUS:
        return ()
    best: Rings = ()
    kept = 1
    for split, spread, first in _attempts(n):
        wanted = min(smallest_cut(reduced) * split, 2 * SEARCH_CHANNELS_MAX)
        rings = _Search(_scaled(reduced, split), wanted, spread).rings(partial(_always, (first,)), None)
        if len(rings) * kept > len(best) * split:
            best, kept = tuple(_turned(ring, 0) for ring in rings), split
        if len(rings) == wanted:
            break
    return best


@lru_cache(maxsize=256)
def open_rings(widths: Widths, nics: tuple[int | None, ...], channels: int) -> tuple[Rings, bool]:
    """Return the way of each channel through a host, from the GPU where it enters to that where it leaves.

    ``nics[i]`` is the NIC that GPU i stands next to, None for one that is further from its NIC than others are. Channels
    take the NICs in turn. Where a NIC has several GPUs, a channel leaves by the NIC it came in by. Where each has one,
    it leaves by any other GPU's, as often by one as by another; the next host must then be passed the other way round, and the
    second value is true. No way where the host has none that passes all GPUs.
    """
    n = len(widths)
    gates = [
        tuple(gpu for gpu in range(n) if nics[gpu] == nic) for nic in sorted({nic for nic in nics if nic is not None})
    ]
    paired = [each for each in gates if len(each) > 1]
    doors = paired or gates
    if not 2 <= n <= MOST_GPUS or not doors:
        return (), False
    turns = -(-channels // len(doors))

    def entries(ring: int) -> tuple[int, ...]:
        return doors[ring % len(doors)]

    def leaves(rings: Sequence[Sequence[int]], entry: int, last: int) -> bool:
        if paired:
            return nics[last] == nics[entry]
        return nics[last] is not None and sum(ring[-1] == last for ring in rings) < turns

    best: Rings = ()
    for split, spread in product(SPLITS, (False, True)):
        rings = _Search(_scaled(widths, split), channels, spread).rings(entries, leaves)
        best = max(best, rings, key=len)
        if len(best) == channels:
            return best, not paired
    return max(best, _opened(closed_rings(widths), paired, channels), key=len), not paired


def smallest_cut(widths: Widths) -> int:
    """Return the fewest units between two halves of the GPUs: every ring crosses each cut (Stoer and Wagner's algorithm)."""
    links = [[min(widths[i][j], widths[j][i]) for j in range(len(widths))] for i in range(len(widths))]
    nodes, smallest = list(range(len(widths))), sum(map(sum, links))
    while len(nodes) > 1:
        joined, apart = [nodes[0]], nodes[1:]
        while apart:
            tightest = max(apart, key=lambda node: sum(links[node][other] for other in joined))
            weight = sum(links[tightest][other] for other in joined)
            joined.append(tightest)
            apart.remove(tightest)
        smallest = min(smallest, weight)
        last, before = joined[-1], joined[-2]
        for node in nodes:
            links[before][node] += links[last][node]
            links[node][before] += links[node][last]
        nodes.remove(last)
    return smallest


def _opened(rings: Rings, doors: Sequence[tuple[int, ...]], channels: int) -> Rings:
    """Return closed rings opened between two GPUs of a channel's NIC, each ring as often as the others where it can be."""
    opened: list[tuple[int, ...]] = []
    uses = [0] * len(rings)
    for channel in range(channels if doors else 0):
        gates = doors[channel % len(doors)]
        fitting = [
            (uses[number], number, entry)
            for number, ring in enumerate(rings)
            for last, entry in zip(ring, ring[1:] + ring[:1], strict=True)
            if last in gates and entry in gates
        ]
        if not fitting:
            break
        _, number, entry = min(fitting)
        uses[number] += 1
        opened.append(_turned(rings[number], entry))
    return tuple(opened)


def _attempts(n: int) -> Iterator[tuple[int, bool, int]]:
    """Yield how to search in turn: channels that share a unit, whether links are used alike, and the GPU to begin at."""
    for split in SPLITS[:2]:
        yield from ((split, False, 0), (split, True, 0))
        yield from ((split, False, first) for first in range(1, n))


def _always(entries: tuple[int, ...], ring: int) -> tuple[int, ...]:
    return entries


class _Search:
    """A search for ``wanted`` rings in links of so many units; ``spread`` takes the link with most units left first."""

    def __init__(self, widths: Widths, wanted: int, spread: bool) -> None:
        n = len(widths)
        self.left = [list(row) for row in widths]
        self.wanted, self.spread, self.steps = wanted, spread, STEPS
        self.next_of = [
            sorted((j for j in range(n) if widths[i][j] and j != i), key=lambda j: (-widths[i][j], (j - i) % n))
            for i in range(n)
        ]
        self.done: list[tuple[int, ...]] = []
        self.best: Rings = ()

    def rings(
        self,
        entries: Callable[[int], tuple[int, ...]],
        leaves: Callable[[Sequence[Sequence[int]], int, int], bool] | None,
    ) -> Rings:
        """Return the most rings: ``entries`` says where one begins, ``leaves`` where it may end; None: where it began."""
        self.entries, self.leaves = entries, leaves
        self._begin()
        return self.best

    def _begin(self) -> bool:
        """Go on with the next ring; return whether the search is over."""
        if len(self.done) > len(self.best):
            self.best = tuple(self.done)
        if len(self.done) == self.wanted:
            return True
        return any(self._go([entry]) for entry in self.entries(len(self.done)))

    def _go(self, path: list[int]) -> bool:
        here = path[-1]
        self.steps -= 1
        if self.steps < 0:
            return True
        if len(path) == len(self.left):
            return self._close(path)
        row = self.left[here]
        following = sorted(self.next_of[here], key=lambda j: -row[j]) if self.spread else self.next_of[here]
        for there in following:
            if row[there] and there not in path:
                row[there] -= 1
                if self._go([*path, there]):
                    return True
                row[there] += 1
        return False

    def _close(self, path: list[int]) -> bool:
        """Take a path through all GPUs as a ring if it may end there, and go on with the next."""
        first, last = path[0], path[-1]
        if self.leaves is not None and not self.leaves(self.done, first, last):
            return False
        if self.leaves is None:
            if not self.left[last][first]:
                return False
            self.left[last][first] -= 1
        self.done.append(tuple(path))
        if self._begin():
            return True
        self.done.pop()
        if self.leaves is None:
            self.left[last][first] += 1
        return False


def _reduced(widths: Widths) -> Widths:
    """Return the widths without their common factor."""
    unit = gcd(*(width for row in widths for width in row)) or 1
    return tuple(tuple(width // unit for width in row) for row in widths)


def _scaled(widths: Widths, factor: int) -> Widths:
    return tuple(tuple(factor * width for width in row) for row in widths)


def _turned(ring: Sequence[int], first: int) -> tuple[int, ...]:
    start = ring.index(first)
    return (*ring[start:], *ring[:start])
