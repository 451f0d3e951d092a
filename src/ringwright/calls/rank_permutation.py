"""A machine whose ranks have other numbers: rank i is what was rank ``of[i]``, links and faults stay where they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.topology import Paths, Topology


def renumbered(topology: Topology, of: Sequence[int] | np.ndarray) -> Topology:
    """Return the machine with its ranks in another order; those behind the last of ``of`` follow in their own.

    Its axes are gone, and that it looks the same from every rank: engines find out for themselves who lies alike. UsageError
    where ``of`` names a rank twice, or one that there is not.
    """
    first = np.asarray(of, np.int64)
    if len(np.unique(first)) < len(first) or (len(first) and not 0 <= first.min() <= first.max() < topology.n_ranks):
        raise UsageError(
            f"{len(first)} ranks in a new order name each of the {topology.n_ranks} of {topology.name} at most once",
            remedy="a permutation of its ranks",
        )
    before = np.arange(topology.n_nodes)
    before[: topology.n_ranks] = np.concatenate((first, np.setdiff1d(np.arange(topology.n_ranks), first)))
    if (before == np.arange(topology.n_nodes)).all():
        return topology
    now = np.argsort(before)
    return replace(
        topology,
        src=now[topology.src],
        dst=now[topology.dst],
        hosts=None if topology.hosts is None else np.asarray(topology.hosts)[before[: topology.n_ranks]],
        names=[topology.label(int(node)) for node in before],
        paths=None if topology.paths is None else RenumberedPaths(topology.paths, before, now),
        faults=tuple(
            replace(each, target=int(now[each.target])) if each.kind == "rank" else each for each in topology.faults
        ),
        aggregators={int(now[node]): what for node, what in topology.aggregators.items()},
        axes=(),
        is_symmetric=False,
    )


@dataclass(frozen=True)
class RenumberedPaths:
    """A fabric's routes under other numbers: ``before`` is what a node was called, ``now`` what it is, int64 a node."""

    paths: Paths
    before: np.ndarray
    now: np.ndarray

    def __call__(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route of each pair, int64 of shape (pairs, longest + 1), padded with -1."""
        nodes = self.paths(self.before[src], self.before[dst])
        renamed: np.ndarray = np.where(nodes < 0, nodes, self.now[nodes])
        return renamed
