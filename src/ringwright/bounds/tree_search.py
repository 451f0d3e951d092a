"""The search for one forest: a linear program over trees, which are made when the prices of resources call for them.

Every root's weights add up to one, and the most loaded resource decides the time (*throughput*, see ``shared_trees``), or the sum
over *rounds* of the most loaded resource in each: then every block goes on in rounds that all trees share, and one message a link
and round does everything. Trees come from the program's dual, which is a price for each resource and round (``tree_pool``).

Sources: Zhao et al., ForestColl, arXiv 2402.06787 (the optimum that forests attain); column generation is textbook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.bounds.forests import Forest, unsolved, whole_shares
from ringwright.bounds.shared_trees import PRECISE, forests
from ringwright.bounds.tree_demands import TreeDemand
from ringwright.bounds.tree_pool import CALM, TreePool
from ringwright.ground.errors import InfeasibleError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.bounds.arcs import Arcs

PATIENCE, BETTER = 8, 1e-3  # by rounds: so many pricings without as much gain end it
FEWEST, MOST_BY_ROUNDS = 6, 60  # pricings by rounds
MOST_ENTRIES = 100_000  # rows times roots of all of them together


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

    ``rounds``: how many all trees share (0: throughput alone counts); ``first``: a forest whose trees are worth a try by
    rounds; ``proved_s``: what nothing is faster than, where that is known. Raises InfeasibleError where a root cannot reach a
    place (in as many rounds), MissingExtraError without SciPy.
    """
    import numpy as np

    if not rounds:
        demand = TreeDemand((arcs,), np.asarray(blocks, float))
        return forests([demand], seed=seed, proved_s=proved_s, must_stop=must_stop)[0][0]
    search = _RoundSearch(arcs, blocks, rounds, seed)
    if first is not None:
        search.take(first)
    return search.by_rounds(must_stop)


class _RoundSearch(TreePool):
    """One linear program of trees and rounds."""

    def __init__(self, arcs: Arcs, blocks: np.ndarray, rounds: int, seed: int) -> None:
        import numpy as np

        self.blocks = np.asarray(blocks, float)
        roots = np.flatnonzero(self.blocks > 0) if arcs.symmetry is None else arcs.symmetry.bases
        load_bytes = self.blocks[roots] * (1 if arcs.symmetry is None else arcs.symmetry.order)
        super().__init__(arcs, roots, load_bytes, rounds, seed)
        if rounds < self.far:
            raise InfeasibleError(f"{self.far} rounds are needed, not {rounds}", where="forests", remedy="more rounds")
        self.unit = float(arcs.rate.max(initial=1.0))
        self.rate = arcs.rate / self.unit  # numbers near 1 for the solver

    def take(self, other: Forest) -> None:
        """Take in the trees of another forest on these arcs that need no more rounds, as early and as late as they may be."""
        import numpy as np

        number_of = {root: number for number, root in enumerate(self.roots.tolist())}
        for root, parents, arrivals in zip(other.roots.tolist(), other.parents, other.arrivals, strict=True):
            late = self.layers - int(arrivals.max())
            self.add([(number_of[root], parents, np.where(arrivals > 0, arrivals + by, 0)) for by in range(late + 1)])

    def by_rounds(self, must_stop: Callable[[], bool]) -> Forest:
        """Search trees whose rounds take the least time together, until that gets no better."""
        import numpy as np

        prices = np.broadcast_to(1.0 / self.rate, (self.layers, len(self.rate))) / len(self.rate)
        self.add(self.layered(prices))
        best, idle, stopped, calm = np.inf, 0, False, None
        entries = self.layers * len(self.rate) * len(self.roots)
        for _ in range(min(MOST_BY_ROUNDS, max(FEWEST, MOST_ENTRIES // entries))):
            time, prices, weights = self._solved()
            idle = 0 if time < best * (1 - BETTER) else idle + 1
            best = min(best, time)
            before = len(self.trees)
            calm = prices if calm is None else CALM * calm + (1 - CALM) * prices
            for each in (calm, prices):
                self.add(self.layered(each))
                for _ in range(self.repeats if self.layers > self.far else 0):
                    self.add(self.timed(each, self.layers))
            if idle >= PATIENCE or len(self.trees) == before:
                break
            if must_stop():
                stopped = True
                break
        time, prices, weights = self._solved()
        return self._forest(time, 0.0, weights, stopped=stopped)

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
        owner = self.owners
        equal = coo_array((np.ones(trees), (owner, np.arange(trees))), (len(self.roots), trees + layers))
        cost = np.concatenate((np.zeros(trees), np.ones(layers)))
        one = np.ones(len(self.roots))
        how = {"method": "highs-ipm"} if layers > 1 else {"options": PRECISE}
        solution = linprog(cost, upper.tocsr(), np.zeros(layers * n), equal.tocsr(), one, **how)
        if solution.x is None and layers > 1:
            solution = linprog(cost, upper.tocsr(), np.zeros(layers * n), equal.tocsr(), one)
        if solution.x is None:
            raise unsolved(solution.message, self.rate)
        prices = np.maximum(-solution.ineqlin.marginals, 0.0).reshape(layers, n)
        norm = (prices * self.rate).sum(axis=1, keepdims=True)
        prices = np.where(norm > 0, prices / np.maximum(norm, 1e-300), 0.0)
        return float(solution.fun) * self.bytes.max(), prices, solution.x[:trees]

    def _forest(self, time: float, least: float, weights: np.ndarray, *, stopped: bool) -> Forest:
        import numpy as np

        kept = np.flatnonzero(weights > 1e-9)
        owner = self.owners[kept]
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
