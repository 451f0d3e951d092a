"""Cheapest trees that reach every node from a root, and cheapest routes to one node, on directed graphs with priced arcs.

Trees by Edmonds' algorithm (Chu and Liu 1965, Edmonds 1967): each node takes its cheapest incoming arc; cycles are
contracted and solved again. Prices may be floats or fractions; with fractions the result is exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    import numpy as np

Price = float | Fraction
Arc = tuple[int, int]
UNSEEN, UNDER_WAY, DONE = range(3)


def least_tree(n: int, root: int, arcs: Sequence[Arc], prices: Sequence[Price]) -> list[int] | None:
    """Return the arcs of the cheapest tree from ``root`` to all of ``n`` nodes; None where it does not reach all."""
    at = [number for number, (src, dst) in enumerate(arcs) if dst not in (root, src)]
    chosen = _spanning(n, root, [(*arcs[number], prices[number], number) for number in at])
    return None if chosen is None else sorted(chosen)


def arborescence(costs: np.ndarray, root: int) -> np.ndarray:
    """Return the parent of each node in the cheapest tree from ``root`` to all (the root's is itself), int64 of shape (nodes,).

    ``costs[u, v]`` is that of arc u > v, float64, inf where there is none. Raises InfeasibleError where a node is out of reach.
    """
    import numpy as np

    src, dst = (ends.tolist() for ends in np.nonzero(np.isfinite(costs)))
    chosen = least_tree(len(costs), root, list(zip(src, dst, strict=True)), costs[src, dst].tolist())
    if chosen is None:
        raise InfeasibleError(
            f"no tree from node {root} reaches all of {len(costs)} nodes",
            remedy="ringwright bound all-gather --topology FILE",
        )
    parents = np.full(len(costs), root, np.int64)
    for number in chosen:
        parents[dst[number]] = src[number]
    return parents


def _spanning(n: int, root: int, arcs: list[tuple[int, int, Price, int]]) -> list[int] | None:
    best: list[tuple[int, int, Price, int] | None] = [None] * n
    for each in arcs:
        held = best[each[1]]
        if held is None or each[2] < held[2]:
            best[each[1]] = each
    cheapest = [arc for arc in best if arc is not None]
    if len(cheapest) < n - 1:
        return None
    source = {arc[1]: arc[0] for arc in cheapest}
    cycle = _cycle(n, root, source)
    if not cycle:
        return [arc[3] for arc in cheapest]
    inside = {node: arc for node in cycle if (arc := best[node]) is not None}
    label = _contracted(n, inside)
    fewer = [
        (label[src], label[dst], price - inside[dst][2] if dst in inside else price, number)
        for number, (src, dst, price, _) in enumerate(arcs)
        if label[src] != label[dst]
    ]
    solved = _spanning(n - len(inside) + 1, label[root], fewer)
    if solved is None:
        return None
    entered = {arcs[number][1] for number in solved}
    return [arcs[number][3] for number in solved] + [arc[3] for node, arc in inside.items() if node not in entered]


def _cycle(n: int, root: int, source: dict[int, int]) -> list[int]:
    """Return the nodes of one cycle among each node's chosen source; none where there is none."""
    state = [UNSEEN] * n
    state[root] = DONE
    for start in range(n):
        walk, node = [], start
        while state[node] == UNSEEN:
            state[node] = UNDER_WAY
            walk.append(node)
            node = source[node]
        if state[node] == UNDER_WAY:
            return walk[walk.index(node) :]
        for each in walk:
            state[each] = DONE
    return []


def _contracted(n: int, inside: dict[int, tuple[int, int, Price, int]]) -> list[int]:
    """Return the new number of each node where those ``inside`` become one, the last."""
    label, count = [0] * n, 0
    for node in range(n):
        if node not in inside:
            label[node] = count
            count += 1
    return [count if node in inside else label[node] for node in range(n)]


def least_route(n: int, root: int, end: int, arcs: Sequence[Arc], prices: Sequence[Price]) -> list[int] | None:
    """Return the arcs of the cheapest route from ``root`` to ``end``; None where there is none. Prices are not negative."""
    leaving: list[list[int]] = [[] for _ in range(n)]
    for number, (src, _) in enumerate(arcs):
        leaving[src].append(number)
    came: dict[int, int] = {}
    done: set[int] = set()
    waiting: list[tuple[Price, int, int]] = [(0, root, -1)]
    while waiting:
        cost, node, arc = heapq.heappop(waiting)
        if node in done:
            continue
        done.add(node)
        came[node] = arc
        if node == end:
            break
        for number in leaving[node]:
            if arcs[number][1] not in done:
                heapq.heappush(waiting, (cost + prices[number], arcs[number][1], number))
    if end not in came:
        return None
    route, node = [], end
    while node != root:
        route.append(came[node])
        node = arcs[came[node]][0]
    return route[::-1]
