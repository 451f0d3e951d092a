"""Forests that share a machine: one linear program weighs the trees of all of them, so that the most loaded resource takes the
least time.

A *demand* is what one group of ranks wants: blocks that are spread, collected, or collected and then spread again. The weights of
a root's trees add up to its block in each phase. Where the blocks are *free* (all-reduce: any rank may add up any part), the
program shares the data out among the roots, and a rank behind a slow link adds up little or nothing.

Several demands are also weighed each by itself, a little: of all plans that are done at the same time the one counts in which
each demand could be done soonest. The dual prices every resource, and for each demand what it takes up itself. At those prices
each root gets the tree that costs least, first the lowest trees, then such in which places wait, then any (``tree_pool``): a
fixed block costs at least its cheapest trees, free data at least those of the cheapest root. When nothing is cheaper than what
is in use, nothing is better.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ringwright.bounds.forests import Forest, unsolved, whole_shares
from ringwright.bounds.tree_demands import TreeDemand
from ringwright.bounds.tree_pool import CALM, TreePool
from ringwright.ground.errors import MissingExtraError

if TYPE_CHECKING:
    import numpy as np


MOST_PRICINGS = 400
PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
CLOSE = 1e-7  # optimum over its proof, less one, at which the search ends
STUCK = 2  # pricings without gain that end a stage of timed trees
ROUNDED = 1e-4  # what whole shares may cost, each time that weights are rounded
EVEN = 1e-3  # what the times of all demands by themselves count, beside that of all together
LEAST = 1e-9  # weight of a tree below which it is left out


def forests(
    demands: Sequence[TreeDemand],
    *,
    seed: int = 0,
    proved_s: float = 0.0,
    enough: float = CLOSE,
    must_stop: Callable[[], bool] = lambda: False,
) -> list[tuple[Forest, ...]]:
    """Return for each demand a forest for each phase, which together take the least time in the limit of large data.

    ``proved_s``: what nothing is faster than, where that is known; the search ends where the time is above what is proved by
    no more than a part, ``enough``. The time of all, and its proof, count in equal parts for each phase of a demand. Raises
    InfeasibleError where a root cannot reach a place, MissingExtraError without SciPy.
    """
    return _SharedSearch(demands, seed).searched(must_stop, proved_s, enough)


class _SharedSearch:
    """One linear program over the trees of all demands and phases."""

    def __init__(self, demands: Sequence[TreeDemand], seed: int) -> None:
        import numpy as np

        self.demands = demands
        arcs = demands[0].phases[0]
        self.unit = float(arcs.rate.max(initial=1.0))
        self.rate = arcs.rate / self.unit  # numbers near 1 for the solver
        self.pools: list[list[TreePool]] = []
        for demand in demands:
            roots = demand.roots
            whole = float(demand.blocks.sum())
            load_bytes = np.full(len(roots), whole) if demand.is_free else demand.blocks[roots] * demand.times
            self.pools.append([TreePool(each, roots, load_bytes, 1, seed) for each in demand.phases])
        self.every = [pool for pools in self.pools for pool in pools]
        self.owner = [at for at, pools in enumerate(self.pools) for _ in pools]
        self.alone = len(demands) if len(demands) > 1 else 0  # columns of the times of demands by themselves
        self.bytes = max(float(pool.bytes.max(initial=1.0)) for pool in self.every)

    def searched(self, must_stop: Callable[[], bool], proved_s: float, enough: float) -> list[tuple[Forest, ...]]:
        """Search trees as low as they may be: layered, then with some rounds more, then any."""
        import numpy as np

        self._add(0, np.broadcast_to(1.0 / self.rate, (len(self.demands), 1, len(self.rate))) / len(self.rate))
        stages = [*range(1 + max(len(pool.waiting) for pool in self.every)), -1]
        time, least, stopped, calm = np.inf, proved_s * self.unit, False, None
        best, idle = np.inf, 0
        for _ in range(MOST_PRICINGS):
            time, prices, weights = self._solved()
            idle = 0 if time < best * (1 - CLOSE) else idle + 1
            best = min(best, time)
            least = max(least, self._least([pool.below(prices[at]) for pool, at in self._owned]))
            stage, before = stages[0], self._count
            calm = prices if calm is None else CALM * calm + (1 - CALM) * prices
            if stage > 0:
                self._add(stage, calm)
            cheapest = self._add(stage, prices)
            least = max(least, cheapest) if stage < 0 else least
            is_done = self._count == before or (idle >= STUCK if stage > 0 else cheapest >= time * (1 - CLOSE))
            if is_done and least < time * (1 - enough):
                costs = [pool.cost(pool.any(prices[at]), prices[at]) for pool, at in self._owned]
                least = max(least, self._least(costs))
                stages, idle = stages[1:], 0
            if least >= time * (1 - enough) or not stages:
                break
            if must_stop():
                stopped = True
                break
        time, prices, weights = self._solved()
        return self._forests(time, least / (1 + EVEN) if self.alone else least, weights, stopped=stopped)

    @property
    def _owned(self) -> list[tuple[TreePool, int]]:
        """Each pool with the number of its demand."""
        return list(zip(self.every, self.owner, strict=True))

    @property
    def _count(self) -> int:
        return sum(len(pool.trees) for pool in self.every)

    def _add(self, stage: int, prices: np.ndarray) -> float:
        """Take in the trees of a stage at prices; return what no use of them costs less than."""
        costs = []
        for pool, at in self._owned:
            rounds = pool.waiting[min(stage, len(pool.waiting)) - 1] if stage > 0 and pool.waiting else min(stage, 0)
            costs.append(pool.add(pool.of_stage(rounds, prices[at]), prices[at]))
        return self._least(costs)

    def _least(self, costs: Sequence[np.ndarray]) -> float:
        """Return what all data cost together where each pool's roots cost as much: free data go by the cheapest root."""
        total, at = 0.0, 0
        for demand in self.demands:
            each = sum(costs[at : at + len(demand.phases)][1:], costs[at])
            at += len(demand.phases)
            total += float(each.min() if demand.is_free else each.sum())
        return total

    # ------------------------------------------------------------------------------------------------- linear program
    def _solved(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the optimum over the trees so far, the prices of resources, and the weights of trees and of free blocks.

        Prices are what a byte costs each demand: float64 of shape (demands, 1, resources).
        """
        import numpy as np

        try:
            from scipy.optimize import linprog
            from scipy.sparse import coo_array
        except ImportError:
            raise MissingExtraError("forests need SciPy's linear programs", extra="solve") from None
        n, trees = len(self.rate), self._count
        loads = np.concatenate([np.stack(pool.loads) for pool in self.every if pool.loads])
        matrix = loads.reshape(trees, n) / self.bytes
        equal, right = self._equalities()
        tree, row = np.nonzero(matrix)
        value, columns = matrix[tree, row], equal.shape[1]
        rows, used = np.tile(np.arange(n), 1 + self.alone), np.repeat(np.arange(1 + self.alone), n)
        mine = np.repeat(self.owner, [len(pool.trees) for pool in self.every])[tree]
        each = [(row, tree, value), (used * n + rows, columns - 1 - used, -self.rate[rows])]
        if self.alone:
            each.append(((1 + mine) * n + row, tree, value))
        at, by, entry = (np.concatenate(lists) for lists in zip(*each, strict=True))
        upper = coo_array((entry, (at, by)), shape=((1 + self.alone) * n, columns))
        cost = np.zeros(columns)
        cost[-1] = 1.0
        cost[columns - 1 - self.alone : -1] = EVEN / max(self.alone, 1)
        solution = linprog(cost, upper.tocsr(), np.zeros(upper.shape[0]), equal, right, options=PRECISE)
        if solution.x is None:
            raise unsolved(solution.message, self.rate)
        prices = np.maximum(-solution.ineqlin.marginals, 0.0).reshape(1 + self.alone, 1, n)
        norm = (prices * self.rate).sum(axis=2, keepdims=True)
        wanted = np.append(1.0, np.full(self.alone, EVEN / max(self.alone, 1))).reshape(-1, 1, 1)
        prices = np.where(norm > 0, prices / np.maximum(norm, 1e-300) * wanted, 0.0)
        return float(solution.fun) * self.bytes, prices[:1] + prices[1:] if self.alone else prices, solution.x

    def _equalities(self) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and right sides: a root's trees make up its block in each phase, free blocks all data.

        Columns are trees, then the free blocks of each demand, then the times of demands, the last one first, and that of all.
        """
        import numpy as np
        from scipy.sparse import coo_array

        entries: list[tuple[np.ndarray, np.ndarray, float]] = []
        right: list[np.ndarray] = []
        row, column, free = 0, 0, self._count
        for demand, pools in zip(self.demands, self.pools, strict=True):
            roots = np.arange(len(pools[0].roots))
            for pool in pools:
                entries.append((row + pool.owners, column + np.arange(len(pool.trees)), 1.0))
                if demand.is_free:
                    entries.append((row + roots, free + roots, -1.0))
                right.append(np.full(len(roots), 0.0 if demand.is_free else 1.0))
                row, column = row + len(roots), column + len(pool.trees)
            if demand.is_free:
                entries.append((np.full(len(roots), row), free + roots, 1.0))
                right.append(np.ones(1))
                row, free = row + 1, free + len(roots)
        values = np.concatenate([np.full(len(each[0]), each[2]) for each in entries])
        where = tuple(np.concatenate([each[at] for each in entries]) for at in (0, 1))
        return coo_array((values, where), shape=(row, free + self.alone + 1)).tocsr(), np.concatenate(right)

    # ------------------------------------------------------------------------------------------------- whole shares
    def _forests(self, time: float, least: float, weights: np.ndarray, *, stopped: bool) -> list[tuple[Forest, ...]]:
        """Return the forests of weights, which become whole shares of blocks, and free blocks whole shares of all data."""
        import numpy as np

        ends = [0, *accumulate(len(pool.trees) for pool in self.every)]
        uses = [weights[begin:end] for begin, end in pairwise(ends)]
        made: list[tuple[Forest, ...]] = []
        free, at = ends[-1], 0
        for demand, pools in zip(self.demands, self.pools, strict=True):
            parts, blocks = np.ones(len(pools[0].roots)), demand.blocks
            here = range(at, at + len(pools))
            at += len(pools)
            if demand.is_free:
                mine = weights[free : free + len(parts)]
                free += len(parts)
                parts = self._rounded_blocks(mine, here, uses, time)
                blocks = demand.shared(parts)
            made.append(tuple(self._rounded(each, parts, blocks, uses, time) for each in here))
        exact = self._time(uses)
        least = min(least, exact) / self.unit
        return [
            tuple(
                dataclasses.replace(
                    each, time_s=exact / self.unit / len(phases), least_s=least / len(phases), stopped=stopped
                )
                for each in phases
            )
            for phases in made
        ]

    def _rounded_blocks(self, exact: np.ndarray, here: range, uses: list[np.ndarray], time: float) -> np.ndarray:
        """Return the parts of all data that roots have, as whole shares; ``uses`` of their trees follow."""
        import numpy as np

        def scaled(parts: np.ndarray) -> list[np.ndarray]:
            by = np.where(exact > LEAST, parts / np.maximum(exact, LEAST), 0.0)
            return [use * by[self.every[at].owners] if at in here else use for at, use in enumerate(uses)]

        exact = np.where(exact > LEAST, exact, 0.0)
        exact = exact / exact.sum()
        limit = max(time, self._time(uses)) * (1 + ROUNDED)
        one = np.zeros(len(exact), np.int64)
        shares, of = whole_shares(exact, one, lambda parts: self._time(scaled(parts)) <= limit)
        parts: np.ndarray = shares / of
        uses[:] = scaled(parts)
        return parts

    def _rounded(self, at: int, parts: np.ndarray, blocks: np.ndarray, uses: list[np.ndarray], time: float) -> Forest:
        """Return the forest of a pool whose roots have these parts; its ``uses`` become whole shares of them."""
        import numpy as np

        pool = self.every[at]
        kept = np.flatnonzero((uses[at] > LEAST) & (parts[pool.owners] > 0))
        owner = pool.owners[kept]
        limit = max(time, self._time(uses)) * (1 + ROUNDED)

        def used(fractions: np.ndarray) -> list[np.ndarray]:
            mine = np.zeros(len(uses[at]))
            mine[kept] = fractions * parts[owner]
            return [mine if number == at else use for number, use in enumerate(uses)]

        shares, of = whole_shares(
            uses[at][kept] / parts[owner], owner, lambda fractions: self._time(used(fractions)) <= limit
        )
        uses[:] = used(shares / of)
        kept, owner, shares = kept[shares > 0], owner[shares > 0], shares[shares > 0]
        parents, arrivals = (np.stack([pool.trees[each][column] for each in kept]) for column in (1, 2))
        return Forest(pool.arcs, pool.roots[owner], parents, arrivals, shares, of, blocks, 0.0, 0.0)

    def _time(self, uses: Sequence[np.ndarray]) -> float:
        """Return the time of trees of which each pool uses these parts."""
        import numpy as np

        total = np.zeros(len(self.rate))
        for pool, use in zip(self.every, uses, strict=True):
            for at in np.flatnonzero(use).tolist():
                total += use[at] * pool.loads[at][0]
        return float((total / self.rate).max())
