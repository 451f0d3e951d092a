"""Throughput-optimal forests: for each root trees that carry its block to all, so that no link is used longer than it must be.

A linear program over trees: every root's weights add up to one, and the most loaded resource decides the time. Trees are made
when the prices of resources (the program's dual) call for them: first *layered* ones, in which each rank hangs on its cheapest
parent one arc nearer the root, the lowest trees there are; where those cannot reach the optimum, cheapest arborescences (Chu and
Liu 1965, Edmonds 1967). The search ends when no tree at all is cheaper than those in use: then the dual proves the time.

``by_depth`` asks for another optimum: all blocks go one arc further in each of as many rounds as trees are high, and the sum over
rounds of the most loaded resource is least. Where that sum is no longer than the throughput's optimum, as on tori, one message
a link and round does everything.

Sources: Zhao et al., ForestColl, arXiv 2402.06787 (the optimum that forests attain); column generation is textbook.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.costs.arborescences import arborescence
from ringwright.errors import InfeasibleError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.costs.arcs import Arcs

MOST_ROUNDS = 400  # of pricing
PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
CLOSE = 1e-7  # optimum over its proof, less one, at which the search ends
COARSE = 3e-3  # the same by rounds, whose optimum is compared with others
DRAWS = 3  # trees of a root and pricing, ties by lot
FAR = 1 << 30
SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 28, 30, 32, 36, 40, 48, 56, 60, 64)
FINEST = 1 << 12


@dataclass(frozen=True)
class Forest:
    """Trees of each root with whole shares of its block, on arcs.

    Parameters
    ----------
    arcs
        The arcs that trees consist of.
    roots
        Root of each tree, int64 of shape (trees,); with a symmetry, 0 stands for all.
    parents
        Arc into each place, -1 at the root: int64 of shape (trees, places).
    shares
        Parts of ``of`` that each tree carries, int64 of shape (trees,): each root's add up to ``of``.
    of
        Into how many parts a block is thought to be cut.
    block_bytes
        Bytes of the block of each place, float64 of shape (places,).
    time_s
        Seconds of the most loaded resource in the limit of large data, or their sum over rounds; ``least_s``: what the dual
        proves for forests on these arcs.
    stopped
        Whether a budget ended the search before that proof.
    """

    arcs: Arcs
    roots: np.ndarray
    parents: np.ndarray
    shares: np.ndarray
    of: int
    block_bytes: np.ndarray
    time_s: float
    least_s: float
    by_depth: bool = False
    stopped: bool = False

    @property
    def depths(self) -> np.ndarray:
        """Arcs between the root and each place, int64 of shape (trees, places)."""
        return depths_of(self.arcs, self.parents)

    @property
    def height(self) -> int:
        """Arcs on the longest branch."""
        return int(self.depths.max(initial=0))

    @cached_property
    def rounds(self) -> Rounds:
        """What its trees use, arc by arc from the root on."""
        return rounds_of(self)

    def mirrored(self) -> Forest | None:
        """Return the same trees with every arc the other way, on the arcs turned round; None where an arc has no way back."""
        import numpy as np

        arcs, other = self.arcs, self.arcs.turned_round()
        back = {ends: arc for arc, ends in enumerate(zip(other.src.tolist(), other.dst.tolist(), strict=True))}
        arc_of = np.array([back.get(ends, -1) for ends in zip(arcs.src.tolist(), arcs.dst.tolist(), strict=True)])
        used = self.parents >= 0
        parents = np.where(used, arc_of[self.parents], -1)
        if (parents[used] < 0).any():
            return None
        turned = dataclasses.replace(self, arcs=other, parents=parents)
        return dataclasses.replace(turned, time_s=turned.rounds.time_s(by_depth=self.by_depth))


@dataclass(frozen=True)
class Rounds:
    """What a forest uses in each round: an arc further down in every tree.

    Parameters
    ----------
    seconds
        Of each resource for the bytes it carries, float64 of shape (rounds, resources).
    messages, moves
        Messages that one member of each resource carries where all between two ranks are one, and where each tree sends its own:
        float64 of shape (rounds, resources).
    latency_s
        The longest latency of an arc in each round, float64 of shape (rounds,).
    busy_s
        Seconds that each resource is busy with a message where links block, float64 of shape (resources,).
    """

    seconds: np.ndarray
    messages: np.ndarray
    moves: np.ndarray
    latency_s: np.ndarray
    busy_s: np.ndarray

    def time_s(self, *, by_depth: bool = False) -> float:
        """Return the seconds of the most loaded resource: of all rounds together, or round by round."""
        return float(self.seconds.max(axis=1).sum() if by_depth else self.seconds.sum(axis=0).max())


def rounds_of(forest: Forest) -> Rounds:
    """Return what each round of a forest uses."""
    import numpy as np

    arcs, depth = forest.arcs, forest.depths
    tree, place = np.nonzero(forest.parents >= 0)
    arc = forest.parents[tree, place]
    layer = depth[tree, place] - 1
    height, n = int(layer.max(initial=-1)) + 1, len(arcs.rate)
    bytes_of = forest.block_bytes[forest.roots] * forest.shares / forest.of
    times = arcs.p if arcs.symmetry is not None else 1
    seconds = _spread(arcs, arc, layer, bytes_of[tree] * times, (height, n)) / arcs.rate
    kind = arc if arcs.symmetry is None else arcs.symmetry.back(arcs.dst[arc], arcs.src[arc])
    _, first = np.unique(layer * (int(kind.max(initial=0)) + 1) + kind, return_index=True)
    messages = _spread(arcs, arc[first], layer[first], np.full(len(first), float(times)), (height, n)) / arcs.members
    moves = _spread(arcs, arc, layer, np.full(len(arc), float(times)), (height, n)) / arcs.members
    latency_s = np.zeros(height)
    np.maximum.at(latency_s, layer, arcs.latency_s[arc])
    return Rounds(seconds, messages, moves, latency_s, arcs.busy_s)


def _spread(arcs: Arcs, arc: np.ndarray, layer: np.ndarray, weight: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return weights of arcs added up by layer and resource. float64 of ``shape``."""
    import numpy as np

    lengths = arcs.starts[arc + 1] - arcs.starts[arc]
    ends = np.cumsum(lengths)
    at = np.repeat(arcs.starts[arc] - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
    index = np.repeat(layer, lengths) * shape[1] + arcs.resources[at]
    return np.bincount(index, weights=np.repeat(weight, lengths), minlength=shape[0] * shape[1]).reshape(shape)


def depths_of(arcs: Arcs, parents: np.ndarray) -> np.ndarray:
    """Return how many arcs are above each place of each tree, int64 of the shape of ``parents``."""
    import numpy as np

    depth = np.where(parents < 0, 0, -1)
    above = np.where(parents < 0, 0, arcs.src[parents])
    while (depth < 0).any():
        up = np.take_along_axis(depth, above, axis=1)
        ready = (depth < 0) & (up >= 0)
        if not ready.any():
            raise InfeasibleError("a tree has a circle", where="forests")
        depth = np.where(ready, up + 1, depth)
    return depth


def forest(
    arcs: Arcs,
    blocks: np.ndarray,
    *,
    by_depth: bool = False,
    seed: int = 0,
    must_stop: Callable[[], bool] = lambda: False,
) -> Forest:
    """Return the best forest for blocks of some bytes (float64 of shape (places,); 0: no root) on arcs.

    Raises InfeasibleError where a root cannot reach a place, MissingExtraError without SciPy.
    """
    return _Search(arcs, blocks, by_depth=by_depth, seed=seed).run(must_stop)


class _Search:
    """One linear program and its trees."""

    def __init__(self, arcs: Arcs, blocks: np.ndarray, *, by_depth: bool, seed: int) -> None:
        import numpy as np

        self.arcs, self.by_depth, self.blocks = arcs, by_depth, np.asarray(blocks, float)
        every = np.flatnonzero(blocks > 0)
        self.roots = every[:1] if arcs.symmetry is not None else every
        times = len(every) if arcs.symmetry is not None else 1
        self.bytes = blocks[self.roots].astype(float) * times
        self.hops = hops(arcs, self.roots)
        self.layers = int(self.hops.max(initial=1)) if by_depth else 1
        self.draw = np.random.default_rng(seed)
        self.into = _into(arcs)
        self.unit = float(arcs.rate.max(initial=1.0))
        self.rate = arcs.rate / self.unit  # numbers near 1 for the solver
        self.root_of: list[int] = []
        self.trees: list[np.ndarray] = []
        self.loads: list[np.ndarray] = []
        self._known: set[bytes] = set()

    def run(self, must_stop: Callable[[], bool]) -> Forest:
        import numpy as np

        n = len(self.arcs.rate)
        prices = np.broadcast_to(1.0 / self.rate, (self.layers, n)) / n
        least, stopped, wide = 0.0, False, False  # wide: trees of any height are asked for
        self._add(self._layered(prices))
        for _ in range(MOST_ROUNDS):
            time, prices, weights = self._solved()
            try:
                before = len(self.trees)
                cheapest = self._add(self._any(prices) if wide else self._layered(prices), prices)
            except KeyboardInterrupt:
                stopped = True
                break
            least = max(least, cheapest if wide or self.by_depth else self._below_any(prices))
            close = cheapest >= time * (1 - (COARSE if self.by_depth else CLOSE)) or len(self.trees) == before
            if close and (wide or self.by_depth or least >= time * (1 - CLOSE)):
                break
            wide = wide or close
            if must_stop():
                stopped = True
                break
        time, prices, weights = self._solved()
        return self._forest(time, least, weights, stopped=stopped)

    def _below_any(self, prices: np.ndarray) -> float:
        """Return what no trees can cost less than at the prices: in each, every place but the root has an arc into it."""
        import numpy as np

        cost = np.append(self.arcs.cost(prices[0]), np.inf)
        into = cost[self.into].min(axis=1)
        return float((self.bytes * (into.sum() - into[self.roots])).sum())

    # ------------------------------------------------------------------------------------------------- trees by price
    def _layered(self, prices: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return for each root, and draw, the tree in which each place has its cheapest parent one arc nearer the root."""
        import numpy as np

        cost = self.arcs.cost(prices)
        made: list[tuple[int, np.ndarray]] = []
        valid = self.into >= 0
        lot = [None, *(self.draw.random(self.arcs.count) for _ in range(DRAWS - 1))]
        for number, root in enumerate(self.roots.tolist()):
            far = self.hops[number]
            usable = far[self.arcs.src] + 1 == far[self.arcs.dst]
            layer = np.clip(far[self.arcs.dst] - 1, 0, self.layers - 1)
            mine = np.where(usable, cost[layer, np.arange(self.arcs.count)], np.inf)
            ties = 1e-7 * float(mine[usable].max(initial=1.0)) if usable.any() else 0.0
            for random in lot:
                priced = mine if random is None else mine + ties * random
                choice = np.where(valid, priced[self.into], np.inf).argmin(axis=1)
                parents = self.into[np.arange(self.arcs.p), choice]
                parents[root] = -1
                made.append((number, parents))
        return made

    def _any(self, prices: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return for each root the cheapest tree of any height."""
        import numpy as np

        cost = self.arcs.cost(prices[0])
        dense = np.full((self.arcs.p, self.arcs.p), np.inf)
        number = np.full((self.arcs.p, self.arcs.p), -1, np.int64)
        order = np.argsort(-cost, kind="stable")  # of parallel arcs the cheapest stays
        dense[self.arcs.src[order], self.arcs.dst[order]] = cost[order] + 1e-12 * float(cost.max(initial=1.0))
        number[self.arcs.src[order], self.arcs.dst[order]] = order
        made = []
        for at, root in enumerate(self.roots.tolist()):
            above = arborescence(dense, root)
            parents = number[above, np.arange(self.arcs.p)]
            parents[root] = -1
            made.append((at, parents))
        return made

    def _add(self, made: list[tuple[int, np.ndarray]], prices: np.ndarray | None = None) -> float:
        """Take in the trees that are new; return what the cheapest of each root cost together at the prices."""
        import numpy as np

        best = np.full(len(self.roots), np.inf)
        for number, parents in made:
            key = number.to_bytes(4, "little") + parents.tobytes()
            if prices is None and key in self._known:
                continue
            load = self._load(number, parents)
            if prices is not None:
                best[number] = min(best[number], float((load * prices).sum()))
            if key not in self._known:
                self._known.add(key)
                self.root_of.append(number)
                self.trees.append(parents)
                self.loads.append(load)
        return float(best.sum()) if prices is not None else 0.0

    def _load(self, number: int, parents: np.ndarray) -> np.ndarray:
        """Return the bytes that a tree with a whole block puts on each resource in each round. Of shape (rounds, resources)."""
        import numpy as np

        arcs = self.arcs
        used = parents[parents >= 0]
        layer = np.clip(self.hops[number][arcs.dst[used]] - 1, 0, self.layers - 1)
        return _spread(arcs, used, layer, np.full(len(used), self.bytes[number]), (self.layers, len(arcs.rate)))

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
        equal = coo_array(
            (np.ones(trees), (np.array(self.root_of), np.arange(trees))), (len(self.roots), trees + layers)
        )
        cost = np.concatenate((np.zeros(trees), np.ones(layers)))
        solution = linprog(
            cost, upper.tocsr(), np.zeros(layers * n), equal.tocsr(), np.ones(len(self.roots)), options=PRECISE
        )
        if solution.x is None:
            raise InfeasibleError(f"the linear program of trees was not solved: {solution.message}", where="forests")
        prices = np.maximum(-solution.ineqlin.marginals, 0.0).reshape(layers, n)
        norm = (prices * self.rate).sum(axis=1, keepdims=True)
        prices = np.where(norm > 0, prices / np.maximum(norm, 1e-300), 0.0)
        return float(solution.fun) * self.bytes.max(), prices, solution.x[:trees]

    def _forest(self, time: float, least: float, weights: np.ndarray, *, stopped: bool) -> Forest:
        import numpy as np

        kept = np.flatnonzero(weights > 1e-9)
        root_of, loads = np.array(self.root_of)[kept], np.stack(self.loads)[kept]
        shares, of = whole_shares(weights[kept], root_of, lambda parts: self._time(loads, parts) <= time * (1 + 1e-6))
        used = shares > 0
        exact = self._time(loads, shares / of)
        return Forest(
            self.arcs,
            self.roots[root_of][used],
            np.stack(self.trees)[kept][used],
            shares[used],
            of,
            self.blocks,
            exact / self.unit,
            min(least, exact) / self.unit,
            self.by_depth,
            stopped,
        )

    def _time(self, loads: np.ndarray, parts: np.ndarray) -> float:
        """Return the time of trees with these parts of their blocks."""
        import numpy as np

        return float((np.tensordot(parts, loads, 1) / self.rate).max(axis=1).sum())


def whole_shares(
    weights: np.ndarray, owner: np.ndarray, is_good: Callable[[np.ndarray], bool]
) -> tuple[np.ndarray, int]:
    """Return weights as whole shares of a number of parts, the fewest parts that are good; int64 of the shape of ``weights``.

    Of each owner they add up to all parts: rounded down, then up where most was lost, the first of equals.
    """
    import numpy as np

    shares, of = np.zeros(len(weights), np.int64), 0
    for parts in (*SHARES, FINEST):
        exact = weights * parts
        shares, of = np.floor(exact + 1e-9).astype(np.int64), parts
        for each in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == each)
            short = parts - int(shares[mine].sum())
            order = np.argsort(-(exact - shares)[mine], kind="stable")
            shares[mine[order[:short]]] += 1
        if is_good(shares / parts):
            break
    return shares, of


def hops(arcs: Arcs, roots: np.ndarray) -> np.ndarray:
    """Return the arcs from each root to each place, int64 of shape (roots, places); InfeasibleError where one is not reached."""
    import numpy as np

    far = np.full((len(roots), arcs.p), FAR, np.int64)
    far[np.arange(len(roots)), roots] = 0
    order = np.argsort(arcs.dst, kind="stable")
    src, dst = arcs.src[order], arcs.dst[order]
    first = np.flatnonzero(np.diff(dst, prepend=-1))
    targets = dst[first]
    while len(first):
        nearer = np.minimum.reduceat(far[:, src], first, axis=1) + 1
        better = np.minimum(far[:, targets], nearer)
        if np.array_equal(better, far[:, targets]):
            break
        far[:, targets] = better
    if (far >= FAR).any():
        root, lost = np.argwhere(far >= FAR)[0].tolist()
        ends = (lost, int(roots[root])) if arcs.reversed else (int(roots[root]), lost)
        raise InfeasibleError(
            f"no data get from rank {ends[0]} to rank {ends[1]} of the group",
            where=f"{int((far >= FAR).sum())} pairs of ranks",
            remedy="ringwright bound all-gather --topology FILE",
        )
    return far


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
