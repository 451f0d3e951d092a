"""Steps and rounds: a machine as SCCL sees it, and what no algorithm on it can fall below.

A *round* is the time in which the slowest link carries one chunk. A *limit* says that a set of edges carries at most so
many chunks a round: a link alone, or what several pairs of ranks share (a port of a switch, a PCIe switch, a NIC). An
algorithm does *steps*, each of which lasts some rounds; what a step sends was there when it began.

steps     at least the longest of the shortest routes, in edges, from a chunk's source to where it must go.
rounds    put a price on every limit, so that a round's worth of all limits costs 1. Whatever is sent, the total price of all
          chunks is at most the number of rounds; and no chunk gets where it must for less than the cheapest tree (or route)
          under these prices. So the sum of the cheapest is a bound, whatever the prices: ``proven_rounds`` needs no solver. The
          best prices are the dual of the fractional packing of trees, by cutting planes (``rounds_bound``).
Source: Cai et al., Synthesizing Optimal Collective Algorithms, PPoPP 2021 (model and the two bounds).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.costs.cheapest_trees import least_route, least_tree
from ringwright.costs.cuts import goodput
from ringwright.errors import InfeasibleError, MissingExtraError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.topology import Topology

Flow = tuple[int, tuple[int, ...]]  # where a chunk is, and where it must go
MOST_CUTS = 40  # rounds of cutting planes
SLACK = 1e-9
WHOLE = 1e-6  # by how much a rate may fall short of a whole multiple of the slowest
REMEDY = "ringwright bound all-gather --topology FILE"


@dataclass(frozen=True)
class Limit:
    """At most ``chunks`` a round cross ``edges`` in all (an edge that is named twice counts twice)."""

    edges: tuple[int, ...]
    chunks: int


@dataclass(frozen=True)
class Wires:
    """Edges between ``p`` ranks, and the limits on them. ``unit_rate`` is bytes/s of one chunk a round."""

    p: int
    edges: tuple[tuple[int, int], ...]
    limits: tuple[Limit, ...]
    unit_rate: float = 1.0

    @cached_property
    def turned(self) -> Wires:
        """The same with every edge the other way round, in the order of the edges: equal where both ways are alike."""
        ends = sorted((there, here, edge) for edge, (here, there) in enumerate(self.edges))
        number = {edge: at for at, (_, _, edge) in enumerate(ends)}
        limits = ((tuple(sorted(number[edge] for edge in limit.edges)), limit.chunks) for limit in self.limits)
        turned = tuple(Limit(edges, chunks) for edges, chunks in sorted(limits))
        return Wires(self.p, tuple((here, there) for here, there, _ in ends), turned, self.unit_rate)

    @cached_property
    def hops(self) -> tuple[tuple[float, ...], ...]:
        """Edges on the shortest route from each rank to each; inf where there is none."""
        leaving: list[list[int]] = [[] for _ in range(self.p)]
        for here, there in self.edges:
            leaving[here].append(there)
        return tuple(tuple(_hops(self.p, root, leaving)) for root in range(self.p))

    def lengths(self, prices: Sequence[Fraction] | Sequence[float]) -> list[Fraction | float]:
        """Return what a chunk pays on each edge."""
        paid: list[Fraction | float] = [0] * len(self.edges)
        for limit, price in zip(self.limits, prices, strict=True):
            for edge in limit.edges:
                paid[edge] += price
        return paid


def _hops(p: int, root: int, leaving: list[list[int]]) -> list[float]:
    far = [float("inf")] * p
    far[root], front = 0, deque([root])
    while front:
        node = front.popleft()
        for there in leaving[node]:
            if far[there] == float("inf"):
                far[there] = far[node] + 1
                front.append(there)
    return far


# ------------------------------------------------------------------------------------------------------- of a topology
def wires_of(topology: Topology | None, group: Sequence[int]) -> Wires:
    """Return the edges and limits between the ranks of a group, as the machine is at the start; None: a link for each pair.

    An edge joins two ranks whose route passes no third one. Rates count in whole multiples of the slowest.
    """
    import numpy as np

    p = len(group)
    pairs = [(here, there) for here in range(p) for there in range(p) if here != there]
    if topology is None:
        return Wires(p, tuple(pairs), tuple(Limit((edge,), 1) for edge in range(len(pairs))))
    if max(group) >= topology.n_ranks:
        raise UsageError(f"{topology.name} has no rank {max(group)}", remedy=f"0 to {topology.n_ranks - 1}")
    now = topology.at(0.0) if topology.faults else topology
    rate = goodput(now)
    inside = np.zeros(now.n_nodes, bool)
    inside[list(group)] = True
    kept, crossed = [], []
    for pair, links in zip(pairs, _routes(now, group, pairs), strict=True):
        if len(links) and (rate[links] > 0).all() and not inside[now.dst[links[:-1]]].any():
            kept.append(pair)
            crossed.append(links.tolist())
    return _limited(now, p, kept, crossed, rate)


def _routes(topology: Topology, group: Sequence[int], pairs: list[tuple[int, int]]) -> list[np.ndarray]:
    """Return the links of each pair's route; none for a pair without one."""
    import numpy as np

    ends = np.array([(group[here], group[there]) for here, there in pairs], np.int64).reshape(-1, 2)
    try:
        starts, links = topology.routes(ends[:, 0], ends[:, 1])
        return np.split(links, starts[1:-1]) if len(pairs) else []
    except InfeasibleError:
        pass
    routes = []
    for here, there in ends:
        try:
            routes.append(topology.routes(np.array([here]), np.array([there]))[1])
        except InfeasibleError:
            routes.append(np.zeros(0, np.int64))
    return routes


def _limited(
    topology: Topology, p: int, edges: list[tuple[int, int]], crossed: list[list[int]], rate: np.ndarray
) -> Wires:
    users: dict[tuple[str, int], list[int]] = {}
    starts, groups = topology.memberships
    for edge, links in enumerate(crossed):
        for link in links:
            users.setdefault(("link", link), []).append(edge)
            for group in groups[starts[link] : starts[link + 1]].tolist():
                users.setdefault(("group", group), []).append(edge)
    if not users:
        return Wires(p, (), ())
    rates = {
        key: float(rate[key[1]]) if key[0] == "link" else float(topology.groups[key[1]].rate) for key in sorted(users)
    }
    unit = min(rates.values())
    least: dict[tuple[int, ...], int] = {}
    for key, speed in rates.items():
        chunks, named = int(min(speed / unit + WHOLE, 1e6)), tuple(sorted(users[key]))
        least[named] = min(chunks, least.get(named, chunks))
    return Wires(p, tuple(edges), tuple(Limit(named, chunks) for named, chunks in sorted(least.items())), unit)


# ------------------------------------------------------------------------------------------------------------- bounds
def steps_bound(wires: Wires, flows: Sequence[Flow]) -> tuple[int, int, int]:
    """Return (steps, from, to): the farthest that a chunk must go. InfeasibleError where it cannot get there."""
    far = max(((wires.hops[src][dst], src, dst) for src, ends in flows for dst in ends), key=lambda each: each[0])
    if far[0] == float("inf"):
        raise InfeasibleError(f"nothing gets from place {far[1]} of the group to place {far[2]}", remedy=REMEDY)
    return int(far[0]), far[1], far[2]


def proven_rounds(wires: Wires, flows: Sequence[Flow], prices: Sequence[Fraction]) -> Fraction:
    """Return the rounds per chunk that prices on the limits prove, whoever made them; exact.

    Prices count in proportion; UsageError where one is negative, or none is positive.
    """
    if min(prices, default=-1) < 0 or not any(prices):
        raise UsageError("prices are 0 or more, and one of them is more", remedy="rounds_bound(wires, flows)")
    spent = sum((price * limit.chunks for limit, price in zip(wires.limits, prices, strict=True)), Fraction(0))
    lengths = [Fraction(each) for each in wires.lengths(prices)]
    total = Fraction(0)
    for flow in flows:
        total += sum((lengths[edge] for edge in _cheapest(wires, flow, lengths)), Fraction(0))
    return total / spent


def _cheapest(wires: Wires, flow: Flow, lengths: Sequence[Fraction] | Sequence[float]) -> list[int]:
    src, ends = flow
    if len(ends) == 1:
        chosen = least_route(wires.p, src, ends[0], wires.edges, lengths)  # type: ignore[type-var]
    elif len(ends) == wires.p - 1:
        chosen = least_tree(wires.p, src, wires.edges, lengths)  # type: ignore[type-var]
    else:
        raise UsageError(f"a chunk goes to one rank or to all, not to {len(ends)} of {wires.p}")
    if chosen is None:
        raise InfeasibleError(f"nothing gets from place {src} of the group to all that need it", remedy=REMEDY)
    return chosen


@dataclass(frozen=True)
class RoundsBound:
    """No algorithm has fewer rounds per chunk; ``prices`` of the limits prove it (``proven_rounds``)."""

    per_chunk: Fraction
    prices: tuple[Fraction, ...]


def rounds_bound(wires: Wires, flows: Sequence[Flow], alike: Sequence[int] | None = None) -> RoundsBound:
    """Return the highest bound on rounds per chunk, with its proof; limits with one number in ``alike`` get one price."""
    groups = list(range(len(wires.limits))) if alike is None else list(alike)
    weight = Counter[int]()
    for group, limit in zip(groups, wires.limits, strict=True):
        weight[group] += limit.chunks
    best, best_price = -1.0, dict.fromkeys(sorted(weight), 1 / sum(weight.values()))
    cuts: list[tuple[int, Counter[int]]] = []
    ceiling, offered = float("inf"), _around_ranks(wires, groups, weight)
    for price in (best_price, *offered):
        value, more = _cut(wires, flows, groups, price)
        best, best_price = max((best, best_price), (value, price), key=lambda each: each[0])
        cuts += more
    for _ in range(MOST_CUTS):
        ceiling, far = _priced(weight, cuts)
        if ceiling <= best + SLACK * max(1.0, best):
            break
        for price in ({group: (far[group] + best_price[group]) / 2 for group in far}, far):  # half-way is steadier
            value, more = _cut(wires, flows, groups, price)
            cuts += more
            if value > best:
                best, best_price = value, price
                break
    return _rational(wires, flows, [best_price[group] for group in groups], best)


def _around_ranks(wires: Wires, groups: list[int], weight: Counter[int]) -> list[dict[int, float]]:
    """Return prices on all that enters one rank, or leaves it, or does so at any rank: often the best, and a start."""
    made: list[dict[int, float]] = []
    for end in (0, 1):
        total = Counter[int]()
        for rank in range(wires.p):
            inside = {edge for edge, ends in enumerate(wires.edges) if ends[end] == rank}
            priced, covered = Counter[int](), set[int]()
            within = [number for number, limit in enumerate(wires.limits) if inside.issuperset(limit.edges)]
            for number in sorted(within, key=lambda each: (-len(wires.limits[each].edges), each)):
                if covered.isdisjoint(wires.limits[number].edges):
                    covered.update(wires.limits[number].edges)
                    priced[groups[number]] += wires.limits[number].chunks
            total.update(priced)
            made += [_scaled(priced, weight)] if priced else []
        made += [_scaled(total, weight)] if total else []
    return made


def _scaled(spent: Counter[int], weight: Counter[int]) -> dict[int, float]:
    """Return each group's price where so much of a round is spent on it, in proportion."""
    whole = sum(spent.values())
    return {group: spent[group] / whole / chunks for group, chunks in sorted(weight.items())}


def _cut(
    wires: Wires, flows: Sequence[Flow], groups: list[int], price: dict[int, float]
) -> tuple[float, list[tuple[int, Counter[int]]]]:
    """Return the cheapest trees' total price, and per source how often they use the limits of each group."""
    lengths = [float(each) for each in wires.lengths([price[group] for group in groups])]
    limits_of: list[list[int]] = [[] for _ in wires.edges]
    for group, limit in zip(groups, wires.limits, strict=True):
        for edge in limit.edges:
            limits_of[edge].append(group)
    used: dict[int, Counter[int]] = {}
    total = 0.0
    for flow in flows:
        row = used.setdefault(flow[0], Counter())
        for edge in _cheapest(wires, flow, lengths):
            total += lengths[edge]
            row.update(limits_of[edge])
    return total, sorted(used.items(), key=lambda each: each[0])


def _priced(weight: Counter[int], cuts: list[tuple[int, Counter[int]]]) -> tuple[float, dict[int, float]]:
    """Return the best prices against the trees that are known, and what they would prove were there no others."""
    try:
        import numpy as np
        from scipy.optimize import linprog
        from scipy.sparse import csr_array
    except ImportError:
        raise MissingExtraError("the bound on rounds is a linear program", extra="solve") from None
    groups = sorted(weight)
    column = {group: at for at, group in enumerate(groups)}
    sources = {source: len(groups) + at for at, source in enumerate(dict.fromkeys(source for source, _ in cuts))}
    entries = [(row, sources[source], 1.0) for row, (source, _) in enumerate(cuts)]
    entries += [
        (row, column[group], -float(times)) for row, (_, used) in enumerate(cuts) for group, times in used.items()
    ]
    rows, columns, values = zip(*entries, strict=True)
    size = len(groups) + len(sources)
    goal = np.concatenate((np.zeros(len(groups)), -np.ones(len(sources))))
    whole = np.array([[float(weight[group]) for group in groups] + [0.0] * len(sources)])
    matrix = csr_array((values, (rows, columns)), shape=(len(cuts), size))
    solved = linprog(goal, matrix, np.zeros(len(cuts)), whole, [1.0], bounds=(0, None), method="highs")
    if solved.x is None:
        raise InfeasibleError(f"the linear program of the bound has no answer: {solved.message}", remedy=REMEDY)
    return float(-solved.fun), {group: max(0.0, float(solved.x[at])) for at, group in enumerate(groups)}


def _rational(wires: Wires, flows: Sequence[Flow], prices: list[float], value: float) -> RoundsBound:
    """Return the bound of prices near the given ones that are simple fractions, where these prove as much."""
    top = max(prices)
    near = tuple(Fraction(price / top).limit_denominator(5040) for price in prices)
    proven = proven_rounds(wires, flows, near)
    if proven < value - SLACK * 10:
        near = tuple(map(Fraction, prices))
        proven = proven_rounds(wires, flows, near)
    return RoundsBound(proven, near)
