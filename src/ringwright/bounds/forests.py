"""Throughput-optimal forests: for each root trees that carry its block to all, so that no link is used longer than it must be.

Every tree says for each place from whom it gets the block and in which *round*. ``tree_search`` finds the trees; here is what
they are, what their rounds use, and how their weights become whole shares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.bounds.arcs import Arcs

FAR = 1 << 30
SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 28, 30, 32, 36, 40, 48, 56, 60, 64)
FINEST = 1 << 12
TELLS_APART = 1e9  # rates in one linear program, the largest over the smallest


@dataclass(frozen=True)
class Forest:
    """Trees of each root with whole shares of its block, on arcs.

    Parameters
    ----------
    arcs
        The arcs that trees consist of.
    roots
        Root of each tree, int64 of shape (trees,); with a symmetry those of ``bases``, which stand for all.
    parents, arrivals
        Arc into each place, -1 at the root, and the round in which it is used, counted from 1 (0 at the root): int64 of shape
        (trees, places). A place has its block a round or more before it passes it on.
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
    arrivals: np.ndarray
    shares: np.ndarray
    of: int
    block_bytes: np.ndarray
    time_s: float
    least_s: float
    by_rounds: bool = False
    stopped: bool = False

    @property
    def height(self) -> int:
        """Rounds that it takes; arcs on the longest branch where no place waits."""
        return int(self.arrivals.max(initial=0))

    @cached_property
    def rounds(self) -> Rounds:
        """What its trees use, arc by arc from the root on."""
        return rounds_of(self)

    def mirrored(self) -> Forest | None:
        """Return the same trees with every arc the other way, on the arcs turned round; None where an arc has no way back."""
        import numpy as np

        other = self.arcs.turned_round()
        used = self.parents >= 0
        parents = np.where(used, self.arcs.back()[self.parents], -1)
        if (parents[used] < 0).any():
            return None
        turned = dataclasses.replace(self, arcs=other, parents=parents)
        return dataclasses.replace(turned, time_s=turned.rounds.time_s(by_rounds=self.by_rounds))


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

    def time_s(self, *, by_rounds: bool = False) -> float:
        """Return the seconds of the most loaded resource: of all rounds together, or round by round."""
        return float(self.seconds.max(axis=1).sum() if by_rounds else self.seconds.sum(axis=0).max())


def rounds_of(forest: Forest) -> Rounds:
    """Return what each round of a forest uses."""
    import numpy as np

    arcs = forest.arcs
    tree, rank = np.nonzero(forest.parents >= 0)
    arc = forest.parents[tree, rank]
    layer = forest.arrivals[tree, rank] - 1
    height, n = int(layer.max(initial=-1)) + 1, len(arcs.rate)
    bytes_of = forest.block_bytes[forest.roots] * forest.shares / forest.of
    times = arcs.symmetry.order if arcs.symmetry is not None else 1
    seconds = loads_of(arcs, arc, layer, bytes_of[tree] * times, (height, n)) / arcs.rate
    kind = arc if arcs.symmetry is None else arcs.symmetry.kinds(arcs.src[arc], arcs.dst[arc])
    _, first = np.unique(layer * (int(kind.max(initial=0)) + 1) + kind, return_index=True)
    messages = loads_of(arcs, arc[first], layer[first], np.full(len(first), float(times)), (height, n)) / arcs.members
    moves = loads_of(arcs, arc, layer, np.full(len(arc), float(times)), (height, n)) / arcs.members
    latency_s = np.zeros(height)
    np.maximum.at(latency_s, layer, arcs.latency_s[arc])
    return Rounds(seconds, messages, moves, latency_s, arcs.busy_s)


def loads_of(arcs: Arcs, arc: np.ndarray, layer: np.ndarray, weight: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return weights of arcs added up by layer and resource. float64 of ``shape``."""
    import numpy as np

    lengths = arcs.starts[arc + 1] - arcs.starts[arc]
    ends = np.cumsum(lengths)
    at = np.repeat(arcs.starts[arc] - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
    index = np.repeat(layer, lengths) * shape[1] + arcs.resources[at]
    return np.bincount(index, weights=np.repeat(weight, lengths), minlength=shape[0] * shape[1]).reshape(shape)


def whole_shares(
    weights: np.ndarray, owner: np.ndarray, is_good: Callable[[np.ndarray], bool]
) -> tuple[np.ndarray, int]:
    """Return weights as whole shares of a number of parts, the fewest parts that are good; int64 of the shape of ``weights``.

    Of each owner they add up to all parts: rounded down, then up where most was lost, the first of equals.
    """
    import numpy as np

    shares, of = np.zeros(len(weights), np.int64), 0
    for of in (*SHARES, FINEST):
        shares = _rounded(weights, owner, of)
        if is_good(shares / of):
            break
    return shares, of


def evened(forests: Sequence[Forest], most: int, elements: int) -> list[tuple[Forest, ...]]:
    """Return forests whose shares are parts of one number, for each number up to ``most`` that divides ``elements``.

    A block of so many elements can then be cut into equal chunks.
    """
    return [
        tuple(_with_shares(each, _rounded(each.shares / each.of, each.roots, of), of) for each in forests)
        for of in SHARES
        if of <= most and elements % of == 0
    ]


def _with_shares(forest: Forest, shares: np.ndarray, of: int) -> Forest:
    used = shares > 0
    made = dataclasses.replace(
        forest,
        roots=forest.roots[used],
        parents=forest.parents[used],
        arrivals=forest.arrivals[used],
        shares=shares[used],
        of=of,
    )
    return dataclasses.replace(made, time_s=made.rounds.time_s(by_rounds=forest.by_rounds))


def _rounded(weights: np.ndarray, owner: np.ndarray, of: int) -> np.ndarray:
    import numpy as np

    exact = weights * of
    shares: np.ndarray = np.floor(exact + 1e-9).astype(np.int64)
    for each in np.unique(owner).tolist():
        mine = np.flatnonzero(owner == each)
        short = of - int(shares[mine].sum())
        order = np.argsort(-(exact - shares)[mine], kind="stable")
        shares[mine[order[:short]]] += 1
    return shares


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


def unsolved(message: str, rate: np.ndarray) -> InfeasibleError:
    """Return the error of a linear program of trees that the solver gave up; ``rate``: bytes/s, float64 of shape (resources,)."""
    used = rate[rate > 0]
    apart = float(used.max() / used.min()) if len(used) else 1.0
    if apart < TELLS_APART:
        return InfeasibleError(f"the linear program of trees was not solved: {message}", where="forests")
    return InfeasibleError(
        f"the linear program of trees was not solved: the fastest link is {apart:.3g} times as fast as the slowest",
        where=f"a solver tells rates apart up to about {TELLS_APART:.0e}",
        remedy="--method expand, or --ranks without those behind links that carry next to nothing",
    )
