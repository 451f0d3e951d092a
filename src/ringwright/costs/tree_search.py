"""The search for forests: a linear program over trees, which are made when the prices of resources call for them.

Every root's weights add up to one, and the most loaded resource decides the time (*throughput*), or the sum over *rounds* of the
most loaded resource in each: then every block goes on in rounds that all trees share, and one message a link and round does
everything. Trees come from the program's dual, which is a price for each resource and round:

layered   each place hangs on its cheapest parent one arc nearer the root: the lowest trees there are
timed     from the root on, the cheapest arc and round to any place that has no block yet; a place may wait
any       the cheapest arborescence (``cheapest_trees``), however high: what proves that nothing is better

Sources: Zhao et al., ForestColl, arXiv 2402.06787 (the optimum that forests attain); column generation is textbook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.costs.cheapest_trees import arborescence
from ringwright.costs.forests import Forest, hops, loads_of, whole_shares
from ringwright.errors import InfeasibleError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.costs.arcs import Arcs

MOST_PRICINGS = 400
PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
CLOSE = 1e-7  # optimum over its proof, less one, at which the search ends
STUCK = 2  # pricings without gain that end a stage of timed trees
PATIENCE, BETTER = 8, 1e-3  # by rounds: so many pricings without as much gain end it
CALM = 0.7  # how much of the prices so far stays: those of a program that has just begun jump to and fro
FEWEST, MOST_BY_ROUNDS = 6, 60  # pricings by rounds
MOST_ENTRIES = 100_000  # rows times roots of all of them together
DRAWS = 3  # trees of a root and pricing, ties by lot
TIMED = 16  # timed trees of a pricing, of all roots together
EARLY = 1e-4  # by how much a round earlier is worth a higher price
MOST_TIMED = 128  # places of a tree that grows by its cheapest arc
WAITS = (1, 2, 4)  # rounds more than the farthest place needs
Trees = list[tuple[int, "np.ndarray", "np.ndarray"]]  # number of the root, parents, arrivals


def forest(
    arcs: Arcs,
    blocks: np.ndarray,
    *,
    rounds: int = 0,
    seed: int = 0,
    first: Forest | None = None,
    proved_s: float = 0.0,
    must_stop: Callable[[], bool] = lambda: False,
) -> Forest:
    """Return the best forest for blocks of some bytes (float64 of shape (places,); 0: no root) on arcs.

    ``rounds``: how many all trees share (0: throughput alone counts); ``first``: a forest whose trees are worth a try;
    ``proved_s``: what nothing is faster than, where that is known. Raises InfeasibleError where a root cannot reach a place
    (in as many rounds), MissingExtraError without SciPy.
    """
    search = _Search(arcs, blocks, rounds, seed)
    if first is not None:
        search.take(first)
    return search.by_rounds(must_stop) if rounds else search.by_throughput(must_stop, proved_s)


class _Search:
    """One linear program and its trees."""

    def __init__(self, arcs: Arcs, blocks: np.ndarray, rounds: int, seed: int) -> None:
        import numpy as np

        self.arcs, self.blocks = arcs, np.asarray(blocks, float)
        every = np.flatnonzero(self.blocks > 0)
        self.roots = every if arcs.symmetry is None else arcs.symmetry.bases
        self.bytes = self.blocks[self.roots] * (1 if arcs.symmetry is None else arcs.symmetry.order)
        self.hops = hops(arcs, self.roots)
        self.far = int(self.hops.max(initial=1))
        self.layers = rounds or 1
        if 0 < rounds < self.far:
            raise InfeasibleError(f"{self.far} rounds are needed, not {rounds}", where="forests", remedy="more rounds")
        self.draw = np.random.default_rng(seed)
        self.into = _into(arcs)
        self.unit = float(arcs.rate.max(initial=1.0))
        self.rate = arcs.rate / self.unit  # numbers near 1 for the solver
        self.repeats = max(1, TIMED // len(self.roots))
        self.trees: Trees = []
        self.loads: list[np.ndarray] = []
        self.known: set[bytes] = set()

    def take(self, other: Forest) -> None:
        """Take in the trees of another forest on these arcs that need no more rounds, as early and as late as they may be."""
        import numpy as np

        number_of = {root: number for number, root in enumerate(self.roots.tolist())}
        for root, parents, arrivals in zip(other.roots.tolist(), other.parents, other.arrivals, strict=True):
            late = self.layers - int(arrivals.max())
            self._add([(number_of[root], parents, np.where(arrivals > 0, arrivals + by, 0)) for by in range(late + 1)])

    # ------------------------------------------------------------------------------------------------------ two searches
    def by_throughput(self, must_stop: Callable[[], bool], proved_s: float) -> Forest:
        """Search trees as low as they may be: layered, then with some rounds more, then any."""
        import numpy as np

        self._add(self._layered(np.broadcast_to(1.0 / self.rate, (1, len(self.rate))) / len(self.rate)))
        waiting = [self.far + more for more in WAITS] if self.arcs.p <= MOST_TIMED else []
        stages = [0, *waiting, -1]
        time, least, stopped, calm = np.inf, proved_s * self.unit, False, None
        best, idle = np.inf, 0
        for _ in range(MOST_PRICINGS):
            time, prices, weights = self._solved()
            idle = 0 if time < best * (1 - CLOSE) else idle + 1
            best = min(best, time)
            least = max(least, self._below_any(prices))
            stage, before = stages[0], len(self.trees)
            calm = prices if calm is None else CALM * calm + (1 - CALM) * prices
            if stage > 0:
                self._add(self._of_stage(stage, calm))
            cheapest = self._add(self._of_stage(stage, prices), prices)
            least = max(least, cheapest) if stage < 0 else least
            is_done = len(self.trees) == before or (idle >= STUCK if stage > 0 else cheapest >= time * (1 - CLOSE))
            if is_done and least < time * (1 - CLOSE):
                least = max(least, self._cost(self._any(prices), prices))
                stages, idle = stages[1:], 0
            if least >= time * (1 - CLOSE) or not stages:
                break
            if must_stop():
                stopped = True
                break
        time, prices, weights = self._solved()
        return self._forest(time, least, weights, stopped=stopped)

    def by_rounds(self, must_stop: Callable[[], bool]) -> Forest:
        """Search trees whose rounds take the least time together, until that gets no better."""
        import numpy as np

        prices = np.broadcast_to(1.0 / self.rate, (self.layers, len(self.rate))) / len(self.rate)
        self._add(self._layered(prices))
        best, idle, stopped, calm = np.inf, 0, False, None
        entries = self.layers * len(self.rate) * len(self.roots)
        for _ in range(min(MOST_BY_ROUNDS, max(FEWEST, MOST_ENTRIES // entries))):
            time, prices, weights = self._solved()
            idle = 0 if time < best * (1 - BETTER) else idle + 1
            best = min(best, time)
            before = len(self.trees)
            calm = prices if calm is None else CALM * calm + (1 - CALM) * prices
            for each in (calm, prices):
                self._add(self._layered(each))
                for _ in range(self.repeats if self.layers > self.far else 0):
                    self._add(self._timed(each, self.layers))
            if idle >= PATIENCE or len(self.trees) == before:
                break
            if must_stop():
                stopped = True
                break
        time, prices, weights = self._solved()
        return self._forest(time, 0.0, weights, stopped=stopped)

    def _of_stage(self, stage: int, prices: np.ndarray) -> Trees:
        import numpy as np

        if stage < 0:
            return self._any(prices)
        return self._timed(np.repeat(prices, stage, axis=0), stage) if stage else self._layered(prices)

    def _below_any(self, prices: np.ndarray) -> float:
        """Return what no trees can cost less than at the prices: in each, every place but the root has an arc into it."""
        import numpy as np

        cost = np.append(self.arcs.cost(prices[0]), np.inf)
        into = cost[self.into].min(axis=1)
        return float((self.bytes * (into.sum() - into[self.roots])).sum())

    # ------------------------------------------------------------------------------------------------- trees by price
    def _layered(self, prices: np.ndarray) -> Trees:
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

    def _timed(self, prices: np.ndarray, rounds: int) -> Trees:
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

    def _any(self, prices: np.ndarray) -> Trees:
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

    def _cost(self, made: Trees, prices: np.ndarray) -> float:
        """Return what trees, one a root, cost together at the prices."""
        return sum(float((self._load(*tree) * prices).sum()) for tree in made)

    def _add(self, made: Trees, prices: np.ndarray | None = None) -> float:
        """Take in the trees that are new; return what the cheapest of each root cost together at the prices."""
        import numpy as np

        best = np.full(len(self.roots), np.inf)
        for number, parents, arrivals in made:
            key = number.to_bytes(4, "little") + parents.tobytes() + (arrivals.tobytes() if self.layers > 1 else b"")
            if prices is None and key in self.known:
                continue
            load = self._load(number, parents, arrivals)
            if prices is not None:
                best[number] = min(best[number], float((load * prices).sum()))
            if key not in self.known:
                self.known.add(key)
                self.trees.append((number, parents, arrivals))
                self.loads.append(load)
        return float(best.sum()) if prices is not None else 0.0

    def _load(self, number: int, parents: np.ndarray, arrivals: np.ndarray) -> np.ndarray:
        """Return the bytes that a tree with a whole block puts on each resource in each round. Of shape (rounds, resources)."""
        import numpy as np

        used = np.flatnonzero(parents >= 0)
        layer = np.clip(arrivals[used] - 1, 0, self.layers - 1)
        weight = np.full(len(used), self.bytes[number])
        return loads_of(self.arcs, parents[used], layer, weight, (self.layers, len(self.arcs.rate)))

    # ------------------------------------------------------------------------------------------------- linear program
    def _solved(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the optimum over the trees so far, the price of each resource in each round, and the weights."""
        import numpy as np

        try:
            from scipy.optimize import linprog
            from scipy.sparse import coo_array
        except ImportError:
            raise MissingExtraError("forests need SciPy's linear programs", extra="solve") from None
        n, trees, layers = len(self.arcs.rate), len(self.trees), self.layers
        matrix = np.stack(self.loads).reshape(trees, layers * n) / self.bytes.max()
        tree, row = np.nonzero(matrix)
        rows = np.arange(layers * n)
        upper = coo_array(
            (
                np.concatenate((matrix[tree, row], -np.tile(self.rate, layers))),
                (np.concatenate((row, rows)), np.concatenate((tree, trees + rows // n))),
            ),
            shape=(layers * n, trees + layers),
        )
        owner = np.array([number for number, _, _ in self.trees])
        equal = coo_array((np.ones(trees), (owner, np.arange(trees))), (len(self.roots), trees + layers))
        cost = np.concatenate((np.zeros(trees), np.ones(layers)))
        one = np.ones(len(self.roots))
        how = {"method": "highs-ipm"} if layers > 1 else {"options": PRECISE}
        solution = linprog(cost, upper.tocsr(), np.zeros(layers * n), equal.tocsr(), one, **how)
        if solution.x is None and layers > 1:
            solution = linprog(cost, upper.tocsr(), np.zeros(layers * n), equal.tocsr(), one)
        if solution.x is None:
            raise InfeasibleError(f"the linear program of trees was not solved: {solution.message}", where="forests")
        prices = np.maximum(-solution.ineqlin.marginals, 0.0).reshape(layers, n)
        norm = (prices * self.rate).sum(axis=1, keepdims=True)
        prices = np.where(norm > 0, prices / np.maximum(norm, 1e-300), 0.0)
        return float(solution.fun) * self.bytes.max(), prices, solution.x[:trees]

    def _forest(self, time: float, least: float, weights: np.ndarray, *, stopped: bool) -> Forest:
        import numpy as np

        kept = np.flatnonzero(weights > 1e-9)
        owner = np.array([number for number, _, _ in self.trees])[kept]
        loads = np.stack([self.loads[each] for each in kept])
        shares, of = whole_shares(weights[kept], owner, lambda parts: self._time(loads, parts) <= time * (1 + 1e-4))
        kept, owner, loads, shares = kept[shares > 0], owner[shares > 0], loads[shares > 0], shares[shares > 0]
        exact = self._time(loads, shares / of)
        return Forest(
            self.arcs,
            self.roots[owner],
            np.stack([self.trees[each][1] for each in kept]),
            np.stack([self.trees[each][2] for each in kept]),
            shares,
            of,
            self.blocks,
            exact / self.unit,
            min(least, exact) / self.unit,
            self.layers > 1,
            stopped,
        )

    def _time(self, loads: np.ndarray, parts: np.ndarray) -> float:
        """Return the time of trees with these parts of their blocks."""
        import numpy as np

        return float((np.tensordot(parts, loads, 1) / self.rate).max(axis=1).sum())


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
