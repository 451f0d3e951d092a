"""Steps and rounds: what no algorithm can fall below that does steps of some rounds each.

What a step sends was there when it began; in a round every limit of the machine (``round_limits``) lets so many chunks pass.

steps     at least the longest of the shortest routes, in edges, from a chunk's source to where it must go.
rounds    put a price on every limit, so that a round's worth of all limits costs 1. Whatever is sent, the total price of all
          chunks is at most the number of rounds; and no chunk gets where it must for less than the cheapest tree (or route)
          under these prices. So the sum of the cheapest is a bound, whatever the prices: ``proven_rounds`` needs no solver. The
          best prices are the dual of the fractional packing of trees, by cutting planes (``rounds_bound``).
Source: Cai et al., Synthesizing Optimal Collective Algorithms, PPoPP 2021 (the two bounds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ringwright.bounds.cheapest_trees import Price, least_route, least_tree
from ringwright.bounds.round_limits import UnitLinks
from ringwright.ground.errors import InfeasibleError, MissingExtraError, UsageError

Flow = tuple[int, tuple[int, ...]]  # where a chunk is, and where it must go
MOST_CUTS = 40  # rounds of cutting planes
SLACK = 1e-9
REMEDY = "ringwright bound all-gather --topology FILE"


# ------------------------------------------------------------------------------------------------------------- bounds
def steps_bound(wires: UnitLinks, flows: Sequence[Flow]) -> tuple[int, int, int]:
    """Return (steps, from, to): the farthest that a chunk must go. InfeasibleError where it cannot get there."""
    far = max(((wires.hops[src][dst], src, dst) for src, ends in flows for dst in ends), key=lambda each: each[0])
    if far[0] == float("inf"):
        raise InfeasibleError(f"nothing gets from place {far[1]} of the group to place {far[2]}", remedy=REMEDY)
    return int(far[0]), far[1], far[2]


def proven_rounds(wires: UnitLinks, flows: Sequence[Flow], prices: Sequence[Fraction]) -> Fraction:
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


def _cheapest(wires: UnitLinks, flow: Flow, lengths: Sequence[Price]) -> list[int]:
    src, ends = flow
    if len(ends) == 1:
        chosen = least_route(wires.p, src, ends[0], wires.edges, lengths)
    elif len(ends) == wires.p - 1:
        chosen = least_tree(wires.p, src, wires.edges, lengths)
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


def rounds_bound(wires: UnitLinks, flows: Sequence[Flow], alike: Sequence[int] | None = None) -> RoundsBound:
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


def _around_ranks(wires: UnitLinks, groups: list[int], weight: Counter[int]) -> list[dict[int, float]]:
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
    wires: UnitLinks, flows: Sequence[Flow], groups: list[int], price: dict[int, float]
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
        raise MissingExtraError("the bound on rounds needs SciPy's linear programs", extra="solve") from None
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


def _rational(wires: UnitLinks, flows: Sequence[Flow], prices: list[float], value: float) -> RoundsBound:
    """Return the bound of prices near the given ones that are simple fractions, where these prove as much."""
    top = max(prices)
    near = tuple(Fraction(price / top).limit_denominator(5040) for price in prices)
    proven = proven_rounds(wires, flows, near)
    if proven < value - SLACK * 10:
        near = tuple(map(Fraction, prices))
        proven = proven_rounds(wires, flows, near)
    return RoundsBound(proven, near)
