"""Lower bounds where ranks come to a collective at different times.

A message begins when both its ends are there: no rank sends or receives before it comes. So

whole      nothing at all is sent before the second rank comes (the first, where nodes of the network may add), and then the
           bound without arrivals is left;
cut        what must get out of a set of nodes comes from its own ranks, and what must get into it from the others: it begins
           when the first of them is there, and, where the network adds nothing, when the first rank on the other side is;
remaining  what depends on a rank's own data begins when that rank comes: of an all-reduce every byte of the result, so that it
           takes at least a broadcast of all bytes from there; of an all-gather a broadcast of its block; and so on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import Partition, at_best, partitions
from ringwright.bounds.demands import Demand, demand
from ringwright.bounds.lower_bounds import Bound, bound, bounds
from ringwright.ground.errors import UsageError
from ringwright.model.collective import PREFIXES, Collective

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology

LOOSER = "with ranks that come at different times, the cuts that the machine's structure suggests were tried"
MOST_REMAINING = 4  # ranks, the last to come first, of which is asked what of their data is left to be done


def late_bounds(
    collective: Collective,
    topology: Topology,
    arrivals_s: Sequence[float] | np.ndarray,
    *,
    in_network: bool = False,
    alpha: str = "pipelined",
    exact: bool | None = None,
) -> list[Bound]:
    """Return lower bounds on when the last rank is done, in seconds on the clock of the arrivals, the highest first.

    ``arrivals_s`` by rank in the group, shape (p,); the other arguments as in ``lower_bounds.bounds``. ``kind`` ends in "late"
    where an arrival is part of the proof; where ranks come at different times no bound is exact. Raises UsageError for another
    number of arrivals than there are ranks.
    """
    import numpy as np

    come = np.asarray(arrivals_s, np.float64)
    if come.shape != (collective.p,):
        raise UsageError(f"{come.size} arrivals are given for {collective.p} ranks", remedy="one time for each rank")
    plain = bounds(collective, topology, in_network=in_network, alpha=alpha, exact=exact)
    begins = nothing_before(come, in_network=in_network)
    lower = [dataclasses.replace(each, time_s=each.time_s + begins) for each in plain]
    if come.min() == come.max():
        return lower
    lower.append(Bound(float(come.max()), collective.size_bytes, "last late", ground="no rank is done before it comes"))
    lower += _cuts(collective, at_best(topology), come, in_network=in_network)
    for rank in np.argsort(-come, kind="stable")[:MOST_REMAINING].tolist():
        lower += _remaining(collective, topology, rank, float(come[rank]), in_network, alpha)
    lower = [dataclasses.replace(each, exact=False, looser=LOOSER) for each in lower]
    return sorted(lower, key=lambda each: -each.time_s)


def late_bound(
    collective: Collective,
    topology: Topology,
    arrivals_s: Sequence[float] | np.ndarray,
    *,
    in_network: bool = False,
    alpha: str = "pipelined",
    exact: bool | None = None,
) -> Bound:
    """Return the highest of ``late_bounds``."""
    return late_bounds(collective, topology, arrivals_s, in_network=in_network, alpha=alpha, exact=exact)[0]


def nothing_before(arrivals_s: np.ndarray, *, in_network: bool) -> float:
    """Return the seconds before which nothing can be sent: until the second rank comes, or the first where switches may add."""
    import numpy as np

    return float(np.sort(arrivals_s)[0 if in_network or len(arrivals_s) < 2 else 1])


def _remaining(
    collective: Collective, topology: Topology, rank: int, come_s: float, in_network: bool, alpha: str
) -> Iterator[Bound]:
    """Yield when the data of a rank can be where they must, which nothing can begin before it comes."""
    left = _of_rank(collective, rank)
    if left is None:
        return
    after = bound(left, topology, in_network=in_network, alpha=alpha, exact=False)
    name = topology.label(int(collective.group[rank]))
    ground = f"{name} comes at {come_s * 1e6:,.6g} us; then, as of its {left.op}: {after.ground}"
    yield dataclasses.replace(
        after, time_s=come_s + after.time_s, size_bytes=collective.size_bytes, kind=f"{after.kind} late", ground=ground
    )


def _of_rank(collective: Collective, rank: int) -> Collective | None:
    """Return a collective that must be done after a rank comes, on its data alone; None where nothing is known."""
    op, p, n, root = collective.op, collective.p, collective.size_bytes, collective.root
    if collective.counts is not None:
        return None

    def among(what: str, size: int, group: Sequence[int] = collective.group, of: int = rank) -> Collective:
        return Collective(what, group, size, collective.dtype, collective.reduce_op, of)

    block = 0 if n % (p * collective.unit_bytes) else n // p  # of uneven blocks the way alone is counted
    if op in ("all-reduce", "barrier"):
        return among("broadcast", n)
    if op == "all-gather":
        return among("broadcast", block)
    if op in ("reduce-scatter", "all-to-all"):
        return among("scatter", block * p)
    if op in ("broadcast", "scatter"):
        return collective if rank == root else None
    if op == "send-recv":
        return None
    to = root if op in ("reduce", "gather") else p - 1 if op in PREFIXES else rank
    if to == rank or (op in PREFIXES and to < rank):
        return None
    return among("broadcast", n if op != "gather" else block, (collective.group[rank], collective.group[to]), 0)


def _cuts(collective: Collective, topology: Topology, come: np.ndarray, *, in_network: bool) -> Iterator[Bound]:
    """Yield, of each kind of part, the part that is done last: who is late in it or outside it, and then the bytes."""
    import numpy as np

    wanted: Demand = demand(collective, topology)
    for partition in partitions(topology) if collective.size_bytes else ():
        inside, outside = _first(partition, wanted, come)
        out, into = wanted.across(partition.labels[wanted.ranks], partition.parts)
        both = np.maximum(inside, outside)
        for crossing, needed, capacity, origin in (
            ("out of", out, partition.leaving, inside),
            ("into", into, partition.entering, outside),
        ):
            yield from _last(wanted, partition, crossing, needed, capacity, origin if in_network else both)


def _last(
    wanted: Demand, partition: Partition, crossing: str, needed: np.ndarray, capacity: np.ndarray, begins: np.ndarray
) -> Iterator[Bound]:
    """Yield the part that is done last, where what must cross ``begins`` at these seconds."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        time_s = np.where(needed > 0, begins + needed / capacity, 0.0)
    if not len(time_s) or not np.isfinite(time_s).all():
        return
    part = int(time_s.argmax())
    if time_s[part] > 0:
        ground = f"nothing crosses before {begins[part] * 1e6:,.6g} us; the last of the cuts tried"
        members = partition.members(part)
        yield Bound(
            float(time_s[part]),
            wanted.size_bytes,
            f"{partition.kind} late",
            members,
            crossing,
            float(needed[part]),
            float(capacity[part]),
            ground,
        )


def _first(partition: Partition, wanted: Demand, come: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return when the first rank of each part comes, and the first outside it; inf where there is none.

    Both float64 of shape (parts,), seconds.
    """
    import numpy as np

    part = partition.labels[wanted.ranks]
    inside = np.full(partition.parts, np.inf)
    np.minimum.at(inside, part[part >= 0], come[part >= 0])
    loose = float(come[part < 0].min(initial=np.inf))
    order = np.argsort(inside, kind="stable")
    outside = np.full(partition.parts, min(loose, float(inside[order[0]])) if len(order) else loose)
    if len(order):
        others = float(inside[order[1]]) if len(order) > 1 else np.inf
        outside[order[0]] = min(loose, others)
    return inside, outside
