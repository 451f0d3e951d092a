"""Lower bounds on the time of several collectives that begin together on one machine: what all of them must get across a cut.

Each collective by itself has a bound (``lower_bounds``), and none is done sooner than that. Through the links into and out of a
set of nodes must go what each of them has to get there, one after the other or mixed, so the sum over what the links carry is
a bound as well; and so is what must enter all parts of a machine together (``lower_bounds``, sharing).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.bounds.cuts import at_best, partitions
from ringwright.bounds.demands import demand
from ringwright.bounds.lower_bounds import lowest

if TYPE_CHECKING:
    from ringwright.bounds.cuts import Partition
    from ringwright.bounds.demands import Demand
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class JointBound:
    """A time before which not all of several collectives are done.

    ``kind`` names the parts that were tried (rank, host, ...); ``sets`` are the node numbers of what proves it: ``demand_bytes``
    have to get ``crossing`` it at ``capacity`` bytes/s.
    """

    time_s: float
    kind: str
    crossing: str
    demand_bytes: float
    capacity: float
    ground: str
    sets: tuple[tuple[int, ...], ...] = ()


def joint_bound(collectives: Sequence[Collective], topology: Topology, *, alpha: str = "pipelined") -> JointBound:
    """Return the highest bound: of each collective alone, and of all together across the cuts that the machine suggests.

    Raises InfeasibleError where data cannot get where they must.
    """
    machine = at_best(topology)
    best = JointBound(0.0, "alone", "", 0.0, 0.0, "nothing is moved")
    for collective in collectives:
        own = lowest(collective, topology, alpha=alpha)
        if own.time_s > best.time_s:
            facts = own.crossing, own.demand_bytes, own.capacity, f"{collective.label} alone: {own.ground}", own.sets
            best = JointBound(own.time_s, own.kind, *facts)
    wanted = [demand(each, machine) for each in collectives if each.p > 1 and each.size_bytes]
    for partition in partitions(machine) if wanted else ():
        for each in _across(wanted, partition, adds=not topology.aggregators):
            if each.time_s > best.time_s:
                best = each
    return best


def _across(wanted: Sequence[Demand], partition: Partition, *, adds: bool) -> Iterator[JointBound]:
    """Yield the tightest cut of a partition each way, and all parts together where no switch ``adds``."""
    import numpy as np

    sums = np.zeros((2, partition.parts))
    entering = 0.0
    for each in wanted:
        labels = partition.labels[each.ranks]
        mine = np.stack(each.across(labels, partition.parts))
        sums += mine
        held = np.unique(labels)
        if each.op == "all-reduce" and adds and held[0] >= 0:
            entering += 2.0 * (len(held) - 1) * each.size_bytes
        else:
            entering += float(mine[1].sum())
    sides = (("out of", sums[0], partition.leaving), ("into", sums[1], partition.entering))
    for crossing, needed, capacity in sides:
        with np.errstate(divide="ignore", invalid="ignore"):
            time_s = np.where(needed > 0, needed / capacity, 0.0)
        if len(time_s):
            part = int(time_s.argmax())
            facts = (
                crossing,
                float(needed[part]),
                float(capacity[part]),
                "all collectives across the tightest of the cuts tried",
            )
            yield JointBound(float(time_s[part]), partition.kind, *facts, (partition.nodes(part),))
    total = float(partition.entering.sum())
    if total and entering:
        sets = tuple(map(partition.nodes, range(partition.parts)))
        ground = f"what must enter {partition.parts} parts, each a {partition.kind}"
        yield JointBound(entering / total, "parts", "into", entering, total, ground, sets)
