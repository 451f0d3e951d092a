"""Trees for the roots of one forest, made when the prices of resources call for them, with what each puts on every resource.

layered   each place hangs on its cheapest parent one arc nearer the root: the lowest trees there are
timed     from the root on, the cheapest arc and round to any place that has no block yet; a place may wait
any       the cheapest arborescence (``cheapest_trees``), however high: what proves that nothing is better
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.bounds.cheapest_trees import arborescence
from ringwright.bounds.forests import hops, loads_of

if TYPE_CHECKING:
    import numpy as np

    from ringwright.bounds.arcs import Arcs

DRAWS = 3  # trees of a root and pricing, ties by lot
TIMED = 16  # timed trees of a pricing, of all roots together
CALM = 0.7  # how much of the prices so far stays: those of a program that has just begun jump to and fro
EARLY = 1e-4  # by how much a round earlier is worth a higher price
MOST_TIMED = 128  # places of a tree that grows by its cheapest arc
WAITS = (1, 2, 4)  # rounds more than the farthest place needs
Trees = list[tuple[int, "np.ndarray", "np.ndarray"]]  # number of the root, parents, arrivals


class TreePool:
    """The trees so far of each root, and how to make more at prices.

    Parameters
    ----------
    arcs
        The arcs that trees consist of.
    roots, load_bytes
        Place of each root, and the bytes that a tree of it puts on each of its arcs (of all turns together): int64 and float64 of
        shape (roots,).
    layers
        Rounds whose loads are told apart; 1: none are.
    seed
        Of the lots between equal trees.
    """

    def __init__(self, arcs: Arcs, roots: np.ndarray, load_bytes: np.ndarray, layers: int = 1, seed: int = 0) -> None:
        import numpy as np

        self.arcs, self.roots, self.bytes, self.layers = arcs, roots, load_bytes, layers
        self.hops = hops(arcs, roots)
        self.far = int(self.hops.max(initial=1))
        self.draw = np.random.default_rng(seed)
        self.into = _into(arcs)
        self.repeats = max(1, TIMED // max(len(roots), 1))
        self.trees: Trees = []
        self.loads: list[np.ndarray] = []
        self.known: set[bytes] = set()

    @property
    def waiting(self) -> list[int]:
        """Rounds of the trees in which places may wait that are worth a try, none where there are many places."""
        return [self.far + more for more in WAITS] if self.arcs.p <= MOST_TIMED else []

    @property
    def owners(self) -> np.ndarray:
        """Number of the root of each tree, int64 of shape (trees,)."""
        import numpy as np

        return np.array([number for number, _, _ in self.trees], np.int64)

    def layered(self, prices: np.ndarray) -> Trees:
        """Return for each root, and draw, the tree in which each place has its cheapest parent one arc nearer the root."""
        import numpy as np

        cost, count = self.arcs.cost(prices), self.arcs.count
        made: Trees = []
        valid = self.into >= 0
        lot = [None, *(self.draw.random(count) for _ in range(DRAWS - 1))]
        for number, root in enumerate(self.roots.tolist()):
            far = self.hops[number]
            usable = far[self.arcs.src] + 1 == far[self.arcs.dst]
            layer = np.clip(far[self.arcs.dst] - 1, 0, self.layers - 1)
            mine = np.where(usable, cost[layer, np.arange(count)], np.inf)
            ties = 1e-7 * float(mine[usable].max(initial=1.0)) if usable.any() else 0.0
            for random in lot:
                priced = mine if random is None else mine + ties * random
                choice = np.where(valid, priced[self.into], np.inf).argmin(axis=1)
                parents = self.into[np.arange(self.arcs.p), choice]
                parents[root] = -1
                made.append((number, parents, far))
        return made

    def timed(self, prices: np.ndarray, rounds: int) -> Trees:
        """Return for each root the tree that grows by its cheapest arc and round, each after its parent's; ties by lot."""
        import numpy as np

        arcs, each = self.arcs, np.arange(len(self.roots))
        cost = arcs.cost(prices) * (1.0 + EARLY * np.arange(rounds)[:, None])
        cost = cost + 1e-6 * float(cost.max(initial=1.0)) * self.draw.random(cost.shape)
        # What an arc costs from some round on, and in which round that is.
        from_on = np.minimum.accumulate(cost[::-1], axis=0)[::-1]
        later = np.arange(rounds)[:, None]
        when = np.minimum.accumulate(np.where(cost == from_on, later, rounds)[::-1], axis=0)[::-1]
        from_on, when = (
            np.vstack((from_on, np.full(arcs.count, np.inf))),
            np.vstack((when, np.full(arcs.count, rounds))),
        )
        arrivals = np.full((len(self.roots), arcs.p), -1, np.int64)
        parents = np.full((len(self.roots), arcs.p), -1, np.int64)
        arrivals[each, self.roots] = 0
        index = np.arange(arcs.count)
        for _ in range(arcs.p - 1):
            have = arrivals[:, arcs.src]
            open_ = (have >= 0) & (arrivals[:, arcs.dst] < 0)
            priced = np.where(open_, from_on[np.clip(have, 0, rounds), index], np.inf)
            arc = priced.argmin(axis=1)
            good = np.isfinite(priced[each, arc])
            rows, taken = each[good], arc[good]
            parents[rows, arcs.dst[taken]] = taken
            arrivals[rows, arcs.dst[taken]] = when[have[rows, taken], taken] + 1
        whole = (arrivals >= 0).all(axis=1)
        return [(int(number), parents[number], arrivals[number]) for number in each[whole]]

    def any(self, prices: np.ndarray) -> Trees:
        """Return for each root the cheapest tree of any height."""
        import numpy as np

        cost = self.arcs.cost(prices[0])
        dense = np.full((self.arcs.p, self.arcs.p), np.inf)
        number = np.full((self.arcs.p, self.arcs.p), -1, np.int64)
        order = np.argsort(-cost, kind="stable")  # of parallel arcs the cheapest stays
        dense[self.arcs.src[order], self.arcs.dst[order]] = cost[order] + 1e-12 * float(cost.max(initial=1.0))
        number[self.arcs.src[order], self.arcs.dst[order]] = order
        made: Trees = []
        for at, root in enumerate(self.roots.tolist()):
            above = arborescence(dense, root)
            parents = number[above, np.arange(self.arcs.p)]
            parents[root] = -1
            made.append((at, parents, _depths(above, root)))
        return made

    def of_stage(self, stage: int, prices: np.ndarray) -> Trees:
        """Return trees at prices that all rounds share: layered (stage 0), timed in so many rounds, or any (below 0)."""
        import numpy as np

        if stage < 0:
            return self.any(prices)
        return self.timed(np.repeat(prices, stage, axis=0), stage) if stage else self.layered(prices)

    def below(self, prices: np.ndarray) -> np.ndarray:
        """Return what no tree of each root can cost less than at the prices: every place but the root has an arc into it.

        float64 of shape (roots,).
        """
        import numpy as np

        cost = np.append(self.arcs.cost(prices[0]), np.inf)
        into = cost[self.into].min(axis=1)
        least: np.ndarray = self.bytes * (into.sum() - into[self.roots])
        return least

    def cost(self, made: Trees, prices: np.ndarray) -> np.ndarray:
        """Return what trees, one a root, cost at the prices. float64 of shape (trees,)."""
        import numpy as np

        return np.array([float((self.load(*tree) * prices).sum()) for tree in made])

    def add(self, made: Trees, prices: np.ndarray | None = None) -> np.ndarray:
        """Take in the trees that are new; return what the cheapest of each root costs at the prices, inf where none was made.

        float64 of shape (roots,).
        """
        import numpy as np

        best = np.full(len(self.roots), np.inf)
        for number, parents, arrivals in made:
            key = number.to_bytes(4, "little") + parents.tobytes() + (arrivals.tobytes() if self.layers > 1 else b"")
            if prices is None and key in self.known:
                continue
            load = self.load(number, parents, arrivals)
            if prices is not None:
                best[number] = min(best[number], float((load * prices).sum()))
            if key not in self.known:
                self.known.add(key)
                self.trees.append((number, parents, arrivals))
                self.loads.append(load)
        return best

    def load(self, number: int, parents: np.ndarray, arrivals: np.ndarray) -> np.ndarray:
        """Return the bytes that a tree with a whole block puts on each resource in each round.

        float64 of shape (rounds, resources).
        """
        import numpy as np

        used = np.flatnonzero(parents >= 0)
        layer = np.clip(arrivals[used] - 1, 0, self.layers - 1)
        weight = np.full(len(used), self.bytes[number])
        return loads_of(self.arcs, parents[used], layer, weight, (self.layers, len(self.arcs.rate)))


def _depths(above: np.ndarray, root: int) -> np.ndarray:
    """Return how many arcs lie between the root and each place, int64."""
    import numpy as np

    depth = np.zeros(len(above), np.int64)
    here = np.arange(len(above))
    while (here != root).any():
        depth += here != root
        here = above[here]
    return depth


def _into(arcs: Arcs) -> np.ndarray:
    """Return the arcs into each place, padded with -1. int64 of shape (places, most)."""
    import numpy as np

    order = np.argsort(arcs.dst, kind="stable")
    counts = np.bincount(arcs.dst, minlength=arcs.p)
    table = np.full((arcs.p, max(int(counts.max(initial=0)), 1)), -1, np.int64)
    ends = np.cumsum(counts)
    column = np.arange(len(order)) - np.repeat(ends - counts, counts)
    table[arcs.dst[order], column] = order
    return table
