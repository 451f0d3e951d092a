"""Exact cuts by maximum flow, in whole numbers: which set of nodes is hardest to leave.

For weights w (bytes that a node has to give to all others) and capacities c (bytes/s), ``tightest`` finds
T = max w(S) / c(S) over sets S that leave out at least one of the sinks, c(S) being what leaves S. That is ForestColl's
optimum for all-gather (Zhao et al., arXiv 2402.06787, theorem 1): no schedule is faster, and a forest of trees attains it.

Instead of a binary search, T climbs from cut to cut (Newton's method for ratios): at a given T all sources must be able to
reach a sink with capacities T*c; where they cannot, the minimum cut is a set with a larger ratio. T is a ratio of sums of
the given numbers throughout, hence exact. From sink to sink the flow is kept and only its end is moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Cut:
    """A set of nodes and the ratio (or, for ``weakest``, the capacity) that it proves."""

    value: Fraction
    nodes: frozenset[int]


class FlowNetwork:
    """A network under flow. Arcs u > v and v > u are each other's reverse; ``left`` is what may still be pushed."""

    def __init__(self, n_nodes: int, capacities: Mapping[tuple[int, int], int]) -> None:
        self.to: list[int] = []
        self.arcs: list[list[int]] = [[] for _ in range(n_nodes)]
        self.whole: list[int] = []
        for here, there in {(min(pair), max(pair)) for pair in capacities}:
            self.join(here, there, capacities.get((here, there), 0), capacities.get((there, here), 0))
        self.left = list(self.whole)

    def join(self, here: int, there: int, out: int, back: int) -> None:
        """Add an arc with its reverse."""
        self.arcs[here].append(len(self.to))
        self.arcs[there].append(len(self.to) + 1)
        self.to += [there, here]
        self.whole += [out, back]

    def reset(self, factor: int) -> None:
        """Take all flow away and multiply capacities."""
        self.left = [each * factor for each in self.whole]

    def push(self, source: int, sink: int, wanted: int) -> int:
        """Send up to ``wanted`` from source to sink by shortest paths (Dinic); return how much went."""
        sent = 0
        while sent < wanted:
            level = self._levels(source, sink)
            if level[sink] < 0:
                break
            sent += self._block(source, sink, wanted - sent, level)
        return sent

    def reached(self, source: int) -> frozenset[int]:
        """Return the nodes to which more could be sent: after a push that fell short, the source's side of a minimum cut."""
        return frozenset(node for node, level in enumerate(self._levels(source, -1)) if level >= 0)

    def _levels(self, source: int, sink: int) -> list[int]:
        to, left, arcs = self.to, self.left, self.arcs
        level = [-1] * len(arcs)
        level[source] = depth = 0
        front = [source]
        while front and (sink < 0 or level[sink] < 0):
            depth += 1
            further = []
            for node in front:
                for arc in arcs[node]:
                    if left[arc] and level[to[arc]] < 0:
                        level[to[arc]] = depth
                        further.append(to[arc])
            front = further
        return level

    def _block(self, source: int, sink: int, wanted: int, level: list[int]) -> int:
        """Push along arcs that go one level on until none is left."""
        to, left, arcs = self.to, self.left, self.arcs
        after = [0] * len(arcs)
        sent, node = 0, source
        path: list[int] = []
        while True:
            if node == sink:
                least = min(wanted - sent, *(left[arc] for arc in path))
                sent += least
                keep = len(path)
                for position, arc in enumerate(path):
                    left[arc] -= least
                    left[arc ^ 1] += least
                    if not left[arc] and position < keep:
                        keep = position
                if sent == wanted:
                    return sent
                node = to[path[keep] ^ 1] if keep < len(path) else node
                del path[keep:]
                continue
            out, position = arcs[node], after[node]
            while position < len(out) and not (left[out[position]] and level[to[out[position]]] == level[node] + 1):
                position += 1
            after[node] = position
            if position < len(out):
                path.append(out[position])
                node = to[out[position]]
            elif path:
                node = to[path.pop() ^ 1]
                after[node] += 1
            else:
                return sent


def tightest(
    n_nodes: int,
    capacities: Mapping[tuple[int, int], int],
    weights: Mapping[int, int],
    sinks: Sequence[int],
    start: Cut,
) -> Cut:
    """Return the set that proves the largest w(S) / c(S) over sets that leave out a sink.

    ``start`` is any such set with its ratio; the better it is, the faster. Raises ZeroDivisionError where a set with
    weight has no way out.
    """
    unit, scale = math.gcd(*capacities.values()) or 1, math.gcd(*weights.values()) or 1
    network = FlowNetwork(n_nodes + 1, {pair: each // unit for pair, each in capacities.items()})
    supply = {node: each // scale for node, each in weights.items() if each}
    best = Cut(start.value * unit / scale, start.nodes)
    for node in supply:  # the super source, behind all nodes
        network.join(n_nodes, node, 0, 0)
    entry = dict(zip(supply, network.arcs[n_nodes], strict=True))
    before = -1  # the sink at which all flow ends, -1 where there is no flow yet
    for sink in sinks:
        while True:
            short, source = _gather(network, supply, entry, best.value, before, sink)
            if not short:
                break
            beyond = network.reached(source) - {n_nodes}
            best = Cut(Fraction(_weight(supply, beyond), _leaving(capacities, beyond) // unit), beyond)
            before = -1
        before = sink
    return Cut(best.value * scale / unit, best.nodes)


def _gather(
    network: FlowNetwork, supply: Mapping[int, int], entry: Mapping[int, int], ratio: Fraction, before: int, sink: int
) -> tuple[bool, int]:
    """Let all supply end at the sink; return whether it falls short, and from where then."""
    everything = sum(supply.values()) * ratio.denominator
    source = len(network.arcs) - 1
    if before >= 0:
        return network.push(before, sink, everything) < everything, before
    network.reset(ratio.numerator)
    for node, arc in entry.items():
        network.left[arc] = supply[node] * ratio.denominator if node != sink else 0
        network.left[arc ^ 1] = 0
    everything -= supply.get(sink, 0) * ratio.denominator
    short = network.push(source, sink, everything) < everything
    if not short:
        for arc in entry.values():
            network.left[arc] = network.left[arc ^ 1] = 0
    return short, source


def weakest(
    n_nodes: int, capacities: Mapping[tuple[int, int], int], pairs: Iterable[tuple[int, int]], start: Cut
) -> Cut:
    """Return the set with the least capacity that separates the ends of any of the pairs; ``start`` is a first one."""
    unit = math.gcd(*capacities.values()) or 1
    network = FlowNetwork(n_nodes, {pair: each // unit for pair, each in capacities.items()})
    best = Cut(start.value / unit, start.nodes)
    for source, sink in pairs:
        network.reset(1)
        wanted = math.ceil(best.value)
        sent = network.push(source, sink, wanted)
        if sent < best.value:
            best = Cut(Fraction(sent), network.reached(source))
    return Cut(best.value * unit, best.nodes)


def _weight(supply: Mapping[int, int], nodes: frozenset[int]) -> int:
    return sum(each for node, each in supply.items() if node in nodes)


def _leaving(capacities: Mapping[tuple[int, int], int], nodes: frozenset[int]) -> int:
    return sum(each for (here, there), each in capacities.items() if here in nodes and there not in nodes)
