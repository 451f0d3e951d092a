"""From a flow to paths: which arcs each part of a block goes over, and how many bytes it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.bounds.concurrent_flow import ConcurrentFlow

MOST_PARTS = 8  # of a block: further ones go with the last
LITTLE = 1e-6  # part of a block that gets no path of its own


@dataclass(frozen=True)
class SourcePaths:
    """Paths of one source: those of target t are ``by_target[t]``, pairs of arcs and share; shares of a target add up to 1."""

    source: int
    by_target: dict[int, list[tuple[tuple[int, ...], float]]]

    @property
    def parts(self) -> int:
        """The most paths of a target."""
        return max((len(each) for each in self.by_target.values()), default=1)


def paths(flow: ConcurrentFlow) -> list[SourcePaths]:
    """Return the paths that a flow is made of, for each of its sources."""
    into: list[list[int]] = [[] for _ in range(flow.arcs.p)]
    for arc, rank in enumerate(flow.arcs.dst.tolist()):
        into[rank].append(arc)
    src = flow.arcs.src.tolist()
    return [
        _Decomposition(source, into, src, flow.demand[at], flow.carried[at]).paths()
        for at, source in enumerate(flow.sources.tolist())
    ]


class _Decomposition:
    """The flow of one source, of which path after path is taken away, the widest arc into each rank first."""

    def __init__(
        self, source: int, into: list[list[int]], src: list[int], demand: np.ndarray, carried: np.ndarray
    ) -> None:
        self.source, self.into, self.src = source, into, src
        self.demand: list[float] = demand.tolist()
        self.left: list[float] = carried.tolist()

    def paths(self) -> SourcePaths:
        """Return all paths, targets of much data first."""
        order = sorted(range(len(self.demand)), key=lambda rank: (-self.demand[rank], rank))
        return SourcePaths(self.source, {target: self._of(target) for target in order if self.demand[target] > 0})

    def _of(self, target: int) -> list[tuple[tuple[int, ...], float]]:
        wanted = left = self.demand[target]
        made: dict[tuple[int, ...], float] = {}
        while left > LITTLE * wanted:
            path = self._widest(target)
            if path is None:
                break
            amount = min(left, *(self.left[arc] for arc in path))
            if len(made) >= MOST_PARTS:
                break
            made[path] = made.get(path, 0.0) + amount
            left -= amount
            for arc in path:
                self.left[arc] -= amount
        if not made:
            made[self._shortest(target)] = wanted
        total = sum(made.values())
        return [(path, amount / total) for path, amount in made.items()]

    def _widest(self, target: int) -> tuple[int, ...] | None:
        """Return a path back from a target over the widest arcs; None where what is left is the dust of rounding."""
        path: list[int] = []
        at, seen = target, {target}
        while at != self.source:
            arc = max(self.into[at], key=lambda each: (self.left[each], -each))
            at = self.src[arc]
            if self.left[arc] <= LITTLE * self.demand[target] or at in seen:
                return None
            seen.add(at)
            path.append(arc)
        return tuple(reversed(path))

    def _shortest(self, target: int) -> tuple[int, ...]:
        """Return a path of the fewest arcs: for what a flow of rounded numbers has left out."""
        arc_to: dict[int, int] = {target: -1}  # rank -> the arc that leads on to the target
        front = [target]
        while self.source not in arc_to:
            front = [
                self._step(arc_to, arc) for rank in front for arc in self.into[rank] if self.src[arc] not in arc_to
            ]
        path, at = [], self.source
        ends = {arc: rank for rank, arcs in enumerate(self.into) for arc in arcs}
        while at != target:
            path.append(arc_to[at])
            at = ends[arc_to[at]]
        return tuple(path)

    def _step(self, arc_to: dict[int, int], arc: int) -> int:
        arc_to[self.src[arc]] = arc
        return self.src[arc]


def sizes(blocks: np.ndarray, shares: Sequence[Sequence[float]], parts: int, pieces: int, unit: int) -> np.ndarray:
    """Return the bytes of each chunk, int64 of shape (blocks, parts * pieces): whole units, each block's its bytes.

    ``shares`` are those of each block's parts; what a block has no part for is empty.
    """
    table = np.zeros((len(blocks), parts))
    for at, each in enumerate(shares):
        table[at, : len(each)] = each
    inner = np.repeat(np.cumsum(table, axis=1) - table, pieces, axis=1)
    inner += np.repeat(table, pieces, axis=1) * np.tile(np.arange(1, pieces + 1) / pieces, parts)
    units = blocks // unit
    edges = np.minimum(np.floor(inner * units[:, None] + 1e-6).astype(np.int64), units[:, None])
    last = np.array([max(len(each), 1) * pieces - 1 for each in shares])
    edges[np.arange(parts * pieces) >= last[:, None]] = 0
    edges = np.maximum(edges, np.where(np.arange(parts * pieces) >= last[:, None], units[:, None], 0))
    made: np.ndarray = np.diff(edges, axis=1, prepend=0) * unit
    made[np.arange(len(blocks)), last] += blocks % unit
    return made
