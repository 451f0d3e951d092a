"""A lower bound that knows the machine's routes: what gets into or out of each rank of a group, and each host, along them.

The bounds of ``lower_bounds`` let data go anywhere. A program of a group sends between its own ranks, and each such message takes
the route that the machine has for it. So what enters a set of ranks in a second is at most what a linear program says: the sum
over the routes into it, where no link and no shared capacity carries more than its rate.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import at_best, goodput
from ringwright.bounds.demands import demand

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

MOST_RANKS = 32  # of a group that is looked at: two programs for each rank and host


def routed_s(collective: Collective, topology: Topology) -> float | None:
    """Return seconds that no program of a group's ranks is faster than along the machine's routes; inf where none is enough.

    None where that is not worked out: for many ranks, where switches add, and without SciPy.
    """
    import numpy as np

    if (
        find_spec("scipy") is None
        or not 1 < collective.p <= MOST_RANKS
        or topology.aggregators
        or not collective.size_bytes
    ):
        return None
    machine = at_best(topology)
    wanted = demand(collective, machine)
    sets = [np.arange(collective.p)]
    if machine.hosts is not None:
        sets.append(np.unique(np.asarray(machine.hosts)[wanted.ranks], return_inverse=True)[1].ravel())
    src, dst = (each.ravel() for each in np.meshgrid(*2 * [np.arange(collective.p)], indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    uses, rate = _uses(machine, wanted.ranks[src], wanted.ranks[dst])
    longest = 0.0
    for labels in sets:
        parts = int(labels.max()) + 1
        for needed, inner, outer in zip(wanted.across(labels, parts), (src, dst), (dst, src), strict=True):
            for part in np.flatnonzero(needed > 0).tolist():
                crossing = np.flatnonzero((labels[inner] == part) & (labels[outer] != part))
                fastest = _fastest(uses[:, crossing], rate)
                longest = max(longest, float(needed[part]) / fastest if fastest else np.inf)
    return longest


def _uses(machine: Topology, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which resource each route passes, and the rates of resources: bool of shape (resources, routes), float64."""
    import numpy as np

    starts, links = machine.routes(src, dst)
    uses = np.zeros((machine.n_links + len(machine.groups), len(src)), bool)
    uses[links, np.repeat(np.arange(len(src)), np.diff(starts))] = True
    for number, group in enumerate(machine.groups):
        uses[machine.n_links + number] = uses[group.links].any(axis=0)
    rate = np.concatenate((goodput(machine), [group.rate for group in machine.groups]))
    passed = uses.any(axis=1)
    return uses[passed], rate[passed]


def _fastest(uses: np.ndarray, rate: np.ndarray) -> float:
    """Return the bytes/s that routes carry at the most, all of them together."""
    import numpy as np
    from scipy.optimize import linprog

    unit = float(rate.max(initial=1.0))
    mine = uses.any(axis=1)
    solution = linprog(-np.ones(uses.shape[1]), uses[mine].astype(float), rate[mine] / unit)
    return -float(solution.fun) * unit
