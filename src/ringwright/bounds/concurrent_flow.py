"""The maximum concurrent flow: the least time in which all ranks of a group get their data to each other, whatever the routes.

A linear program over arcs (``costs.arcs``): from each source a flow that leaves at each target what is meant for it, and the
most loaded resource decides the time. Where turns of the machine take ranks to each other, and all pairs exchange the same
number of bytes, the flow of one source stands for those that it is taken to. The dual are prices of links. They prove the
time, and ``proved_s`` is that proof: it knows links, capacities and prices alone, neither arcs nor flows.

Source: Shahrokhi and Matula, The maximum concurrent flow problem, J. ACM 37(2), 1990.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import goodput
from ringwright.ground.errors import DeclinedError, InfeasibleError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ringwright.bounds.arcs import Arcs
    from ringwright.model.topology import Topology

MOST_VARIABLES = 400_000  # of the linear program: some minutes
SHORT = 1e-6  # weight of a flow's arcs against its time, so that nothing goes in circles
PRECISE = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
MOST_PAIRS = 1 << 20  # of ranks whose routes are looked up; above, data may take any links


@dataclass(frozen=True)
class ConcurrentFlow:
    """The best flow of an exchange on arcs.

    Parameters
    ----------
    arcs
        The arcs that it goes over.
    sources
        Places whose flows are given, int64 of shape (sources,): all, or one of each orbit where the arcs have a symmetry.
    demand
        Bytes from each source to each place, float64 of shape (sources, places).
    carried
        Bytes over each arc, float64 of shape (sources, arcs).
    time_s
        Seconds of the most loaded resource.
    prices
        What a byte costs on each resource, float64: that of all capacities of a second is 1.
    """

    arcs: Arcs
    sources: np.ndarray
    demand: np.ndarray
    carried: np.ndarray
    time_s: float
    prices: np.ndarray


def concurrent_flow(arcs: Arcs, demand: np.ndarray) -> ConcurrentFlow:
    """Return the best flow for a demand in bytes, float64 of shape (places, places), by source and target.

    ``arcs`` with a symmetry are for a demand that is the same between all pairs. Raises InfeasibleError where a demand cannot be
    met, DeclinedError where the program is too large, MissingExtraError without SciPy.
    """
    import numpy as np

    every = np.flatnonzero(demand.sum(axis=1) - np.diagonal(demand) > 0)
    sources = every if arcs.symmetry is None else arcs.symmetry.bases[np.isin(arcs.symmetry.bases, every)]
    times = 1 if arcs.symmetry is None else arcs.symmetry.order
    wanted = demand[sources].astype(float)
    wanted[np.arange(len(sources)), sources] = 0.0
    if not len(sources):
        return ConcurrentFlow(arcs, sources, wanted, np.zeros((0, arcs.count)), 0.0, np.zeros(len(arcs.rate)))
    if len(sources) * arcs.count > MOST_VARIABLES:
        raise DeclinedError(
            f"the concurrent flow of {len(sources):,} sources over {arcs.count:,} arcs is too large a linear program",
            where=f"{arcs.p:,} ranks",
            remedy="equal blocks on a fabric without faults, whose symmetry folds it, or fewer ranks",
        )
    carried, time_s, prices = _solved(arcs, sources, wanted, times)
    return ConcurrentFlow(arcs, sources, wanted, carried, time_s, prices)


def _solved(arcs: Arcs, sources: np.ndarray, wanted: np.ndarray, times: int) -> tuple[np.ndarray, float, np.ndarray]:
    """Return bytes by source and arc, the time, and the prices of resources."""
    import numpy as np

    try:
        from scipy.optimize import linprog
        from scipy.sparse import block_diag, coo_array, csr_array, hstack, kron
    except ImportError:
        raise MissingExtraError("the concurrent flow needs SciPy's linear programs", extra="solve") from None
    n, p, n_resources = arcs.count, arcs.p, len(arcs.rate)
    byte, rate = float(wanted.max()), float(arcs.rate.max())
    at = np.arange(n)
    ends = (np.concatenate((arcs.dst, arcs.src)), np.concatenate((at, at)))
    into = coo_array((np.repeat([1.0, -1.0], n), ends), shape=(p, n)).tocsr()
    rows = [into[np.flatnonzero(np.arange(p) != source)] for source in sources.tolist()]
    equal = block_diag(rows, format="csr")
    equal = hstack((equal, csr_array((equal.shape[0], 1))), format="csr")
    right = (
        np.concatenate([np.delete(row, source) for source, row in zip(sources.tolist(), wanted, strict=True)]) / byte
    )
    owner = np.repeat(at, np.diff(arcs.starts))
    uses = coo_array((np.full(len(owner), float(times)), (arcs.resources, owner)), shape=(n_resources, n)).tocsr()
    upper = hstack((kron(np.ones((1, len(sources))), uses), -(arcs.rate / rate).reshape(-1, 1)), format="csr")
    least = (
        float(wanted.sum()) * times / byte / float((arcs.rate / rate).sum())
    )  # the time, at the least, in these units
    length = 1.0 + arcs.latency_s / max(float(arcs.latency_s.max(initial=0.0)), 1e-12)
    weight = SHORT * least / max(float(wanted.sum()) / byte, 1e-12) / 2
    cost = np.concatenate((np.tile(weight * length, len(sources)), [1.0]))
    solution = linprog(cost, upper, np.zeros(n_resources), equal, right, options=PRECISE)
    if solution.x is None:
        raise InfeasibleError(
            "some ranks of the group cannot get their data to others, however they go",
            where=f"the linear program of the concurrent flow: {solution.message}",
            remedy="ringwright bound all-to-all --topology FILE",
        )
    carried = np.maximum(solution.x[:-1].reshape(len(sources), n), 0.0) * byte
    time_s = float((times * np.bincount(arcs.resources, carried.sum(axis=0)[owner], n_resources) / arcs.rate).max())
    prices = np.maximum(-solution.ineqlin.marginals, 0.0)
    return carried, time_s, prices / float((prices * arcs.rate).sum())


def link_prices(flow: ConcurrentFlow, topology: Topology, group: Sequence[int]) -> np.ndarray:
    """Return the prices of all links, then of all shared capacities: float64 of shape (links + capacities,)."""
    import numpy as np

    ranks, arcs = np.asarray(group, np.int64), flow.arcs
    ends = (arcs.dst, arcs.src) if arcs.reversed else (arcs.src, arcs.dst)
    starts, links = topology.routes(ranks[ends[0]], ranks[ends[1]])
    owner = np.repeat(np.arange(arcs.count), np.diff(starts))
    first, groups = topology.memberships
    each = np.diff(first)[links]
    at = np.repeat(first[links], each) + np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    owner = np.concatenate((owner, np.repeat(owner, each)))
    numbers = np.concatenate((links, topology.n_links + groups[at]))[np.argsort(owner, kind="stable")]
    prices = np.zeros(topology.n_links + len(topology.groups))
    prices[numbers] = flow.prices[arcs.resources]
    return prices


def proved_s(topology: Topology, group: Sequence[int], demand: np.ndarray, prices: np.ndarray) -> float:
    """Return the seconds that no exchange can take less than, through whatever ranks it goes: a proof that trusts no flow.

    Each byte from a source to a target passes links that cost at least the cheapest journey between them, and the links
    offer the sum of their capacities times prices in a second. ``demand`` is float64 of shape (places, places), ``prices`` of
    shape (links + capacities,), none below 0.
    """
    import numpy as np

    try:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import dijkstra
    except ImportError:
        raise MissingExtraError("the proof of a concurrent flow needs SciPy's graphs", extra="solve") from None

    prices = np.maximum(np.asarray(prices, float), 0.0)
    rates = goodput(topology)
    shared = np.array([each.rate for each in topology.groups])
    budget = float((rates * prices[: topology.n_links]).sum() + (shared * prices[topology.n_links :]).sum())
    cost = prices[: topology.n_links].copy()
    for number, each in enumerate(topology.groups):
        cost[each.links] += prices[topology.n_links + number]
    if not math.isfinite(budget) or budget <= 0:
        return 0.0
    ends, costs = _passages(topology, cost, rates > 0)
    n = topology.n_nodes
    order = np.argsort(-costs, kind="stable")  # of parallel links the cheapest counts
    _, last = np.unique((ends[0] * n + ends[1])[order][::-1], return_index=True)
    order = order[::-1][last]
    tiny = 1e-300  # what costs nothing is still a passage
    graph = coo_array((costs[order] + tiny, (ends[0][order], ends[1][order])), shape=(n, n)).tocsr()
    ranks = np.asarray(group, np.int64)
    far = dijkstra(graph, indices=ranks)[:, ranks]
    wanted = np.where(np.eye(len(ranks), dtype=bool), 0.0, demand)
    needed = wanted > 0
    return float((wanted[needed] * far[needed]).sum()) / budget


def _passages(
    topology: Topology, cost: np.ndarray, alive: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Return ends and costs of the passages of which all routes consist: the links, or the machine's routes between its ranks.

    Switches do not choose: a message from rank to rank takes the route that the machine has for it.
    """
    import numpy as np

    n = topology.n_ranks
    if topology.n_nodes == n or n * (n - 1) > MOST_PAIRS:
        links = np.flatnonzero(alive)
        return (topology.src[links].astype(np.int64), topology.dst[links].astype(np.int64)), cost[links]
    src, dst = (each.ravel() for each in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    starts, links = topology.routes(src, dst)
    owner = np.repeat(np.arange(len(src)), np.diff(starts))
    whole = np.bincount(owner, weights=~alive[links], minlength=len(src)) == 0
    return (src[whole], dst[whole]), np.bincount(owner, weights=cost[links], minlength=len(src))[whole]
