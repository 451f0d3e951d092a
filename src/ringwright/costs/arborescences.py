"""The cheapest arborescence: a tree out of a root that reaches every node, at the least sum of arc costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def arborescence(costs: np.ndarray, root: int) -> np.ndarray:
    """Return the parent of each node (the root's is itself), int64 of shape (nodes,).

    ``costs[u, v]`` is that of arc u > v, inf where there is none; every node has to be within reach. Chu and Liu's way
    (1965; Edmonds 1967): each node takes its cheapest parent; a circle becomes one node, which pays for what it gives up.
    """
    import numpy as np

    costs = costs.copy()
    np.fill_diagonal(costs, np.inf)
    costs[:, root] = np.inf
    parents: np.ndarray = costs.argmin(axis=0)
    parents[root] = root
    circle = _circle(parents, root)
    if circle is None:
        return parents
    rest = np.setdiff1d(np.arange(len(costs)), circle)
    small = np.full((len(rest) + 1, len(rest) + 1), np.inf)
    small[:-1, :-1] = costs[np.ix_(rest, rest)]
    extra = costs[np.ix_(rest, circle)] - costs[parents[circle], circle]
    entry = extra.argmin(axis=1)
    small[:-1, -1] = extra.min(axis=1)
    leaving = costs[np.ix_(circle, rest)]
    exits = leaving.argmin(axis=0)
    small[-1, :-1] = leaving.min(axis=0)
    above = arborescence(small, int(np.flatnonzero(rest == root)[0]))
    inside = len(rest)
    whole: np.ndarray = parents.copy()
    whole[rest] = np.where(above[:-1] < inside, rest[np.minimum(above[:-1], inside - 1)], circle[exits])
    whole[root] = root
    outer = int(above[-1])
    whole[circle[entry[outer]]] = rest[outer]
    return whole


def _circle(parents: np.ndarray, root: int) -> np.ndarray | None:
    """Return the nodes of one circle, rising; None without."""
    import numpy as np

    state = np.zeros(len(parents), np.int8)  # 1: on the present path, 2: leads to the root
    state[root] = 2
    for start in range(len(parents)):
        path, node = [], start
        while state[node] == 0:
            state[node] = 1
            path.append(node)
            node = int(parents[node])
        if state[node] == 1:
            return np.sort(np.array(path[path.index(node) :], np.int64))
        state[path] = 2
    return None
