"""Which factorisation of p into levels suits a machine: all are priced, with the flows that share each link."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.ring_steps import Rings, rings
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

MOST_ORDERS = 20_000


def factorisations(p: int) -> Iterator[tuple[int, ...]]:
    """Yield the products of factors above 1 that make ``p``, in every order."""
    if p == 1:
        yield ()
    for first in range(2, p + 1):
        if p % first == 0:
            yield from ((first, *rest) for rest in factorisations(p // first))


@cache
def count(p: int) -> int:
    """Return how many ordered factorisations ``p`` has."""
    return 1 if p == 1 else sum(count(p // first) for first in range(2, p + 1) if p % first == 0)


def best(collective: Collective, topology: Topology) -> tuple[int, ...]:
    """Return the factors, fastest level first, with which rings on every level take the least time; of equals the fewest levels.

    A level of q ranks with n_i bytes each costs 2 (q-1) alpha + 2 (q-1)/q n_i beta (half of it for a reduce-scatter or an
    all-gather), where all groups of the level run at once: beta is the busiest link's flows over its rate. UsageError where
    there are too many orders to price.
    """
    if count(collective.p) > MOST_ORDERS:
        raise UsageError(
            f"{collective.p} has {count(collective.p):,} ordered factorisations; at most {MOST_ORDERS:,} are priced",
            remedy="name one: factors=8x16",
        )
    prices: dict[tuple[int, int], Rings] = {}
    sides = 2 if collective.op == "all-reduce" else 1

    def seconds(factors: tuple[int, ...]) -> float:
        total, below = 0.0, 1
        for size in factors:
            if (below, size) not in prices:
                prices[below, size] = _level(collective, topology, below, size)
            ring = prices[below, size]
            part = collective.size_bytes / (below * size)
            total += sides * (size - 1) * (ring.alpha_s + (part * ring.beta_s if part else 0.0))
            below *= size
        return total

    return min(factorisations(collective.p), key=lambda factors: (seconds(factors), len(factors), factors))


def _level(collective: Collective, topology: Topology, below: int, size: int) -> Rings:
    """Return what one ring step of all groups of a level at once takes."""
    group = np.asarray(collective.group, np.int64)
    return rings(topology, group.reshape(-1, size, below).swapaxes(1, 2).reshape(-1, size))
