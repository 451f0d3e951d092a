"""Operations that share links or capacities, against all messages of the step at once; jobs are the smallest that show each case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ringwright
import whole_step
from ringwright.engines.job.run import simulate
from ringwright.jobs.pricing.costs import FabricCosts, on_fabric
from ringwright.model.topology import Topology
from ringwright.model.workload import Mesh, Payload, RankClass, Task, Workload

pytestmark = pytest.mark.once  # what is compiled in it is held to its Python twin elsewhere
SIZE, EVERY, HOSTS = 1 << 28, {"every": {}}, ("host", "pair")


def sums(axes: tuple[tuple[str, int], ...], classes: dict[str, dict[str, int]], *payloads: Payload) -> Workload:
    """Return a step in which each class computes for a microsecond, then adds up what it is said to."""
    tasks = [Task(f"F.{name}", name, "F", 1e-6) for name in classes]
    tasks += [Task(f"U.{each.name}", each.of, "U", 0.0, per="step") for each in payloads]
    at = tuple(RankClass(name, place) for name, place in classes.items())
    return Workload("sums", Mesh(axes), at, tuple(tasks), payloads=payloads)


def added(name: str, of: str, *axes: str, joint: tuple[str, ...] = ()) -> Payload:
    """Return an all-reduce along ``axes``, of what each rank of a class and of those beside it has computed."""
    made_by = tuple(f"F.{each}" for each in (of, *joint))
    taken_by = ((f"U.{name}", 0),)
    return Payload(name, of, "all-reduce", SIZE, axes, "dp", made_by, taken_by, elements=SIZE // 4, joint=joint)


def against_messages(workload: Workload, topology: Topology, *stages: str) -> float:
    """Return the time of a step, as a share of what all its messages take together; ``stages``: axes along which classes differ."""
    costs = FabricCosts(topology, workload.mesh, frozenset(stages))
    model, messages = whole_step.both(workload, costs)
    return model / messages


def test_operations_of_two_classes_share_a_capacity() -> None:
    """Pairs below one switch use other ports, and together what the switch can pass on."""
    workload = sums(
        (("half", 2), ("pair", 2)),
        {"low": {"half": 0}, "high": {"half": 1}},
        added("l", "low", "pair"),
        added("h", "high", "pair"),
    )
    free = ringwright.fabric("switch:4,rate=50GB/s")
    tight = ringwright.fabric("switch:4,rate=50GB/s,backplane=100GB/s")
    assert against_messages(workload, free, "half") == pytest.approx(1, rel=0.01)
    assert against_messages(workload, tight, "half") == pytest.approx(1, rel=0.02)


def test_sibling_groups_share_a_capacity_where_no_host_is_known() -> None:
    workload = sums((("half", 2), ("pair", 2)), EVERY, added("sum", "every", "pair"))
    assert against_messages(workload, ringwright.fabric("switch:4,rate=50GB/s,backplane=100GB/s")) == pytest.approx(
        1, rel=0.02
    )


def test_a_capacity_of_a_host_is_that_of_each_host() -> None:
    """Two pairs below each of two PCIe switches; those of the second host are timed as those of the first."""
    axes = (("host", 2), ("pair", 2), ("rank", 2))
    classes = {f"{host}{pair}": {"host": host, "pair": pair} for host in (0, 1) for pair in (0, 1)}
    workload = sums(axes, classes, *(added(f"sum {name}", name, "rank") for name in classes))
    topology = hosts_with_capacities(2, 4)
    assert against_messages(workload, topology, *HOSTS) == pytest.approx(1, rel=0.02)
    later = sums(axes, classes, *(added(f"sum {name}", name, "rank") for name in classes if name[0] == "1"))
    assert against_messages(later, topology, *HOSTS) == pytest.approx(1, rel=0.02)


def hosts_with_capacities(hosts: int, ranks: int) -> Topology:
    """Return hosts of some ranks below one switch, where the ranks of a host share what they send."""
    from ringwright.model.wiring import shared

    n = hosts * ranks
    star = ringwright.fabric(f"switch:{n},rate=50GB/s")
    names = [f"node{rank // ranks}/gpu{rank % ranks}" for rank in range(n)] + ["leaf"]
    assert (star.src[:n] == np.arange(n)).all()
    groups = [shared(f"node{at}/pcie", 100e9, range(at * ranks, (at + 1) * ranks)) for at in range(hosts)]
    return replace(star, hosts=np.arange(n) // ranks, names=names, groups=tuple(groups))


def test_links_of_a_group_on_many_hosts_are_shared_on_its_last_too() -> None:
    """What the ranks of the second half add up goes over ports of hosts 8 to 15, where the sum over all 16 is."""
    workload = sums(
        (("half", 2), ("host", 8)),
        {"low": {"half": 0}, "high": {"half": 1}},
        added("all", "low", "half", "host", joint=("high",)),
        added("part", "high", "host"),
    )
    topology = replace(ringwright.fabric("switch:16,rate=50GB/s"), hosts=np.arange(16))
    assert against_messages(workload, topology, "half") == pytest.approx(1, rel=0.02)


def test_two_operations_of_one_class_on_a_rank_share_its_links() -> None:
    """Along the rows and along the columns of four ranks, each a communicator of its own: both at once, folded or not."""
    payloads = [added(axis, "every", axis) for axis in ("row", "column")]
    workload = sums((("row", 2), ("column", 2)), EVERY, *payloads)
    topology = ringwright.fabric("switch:4,rate=50GB/s")
    assert against_messages(workload, topology) == pytest.approx(1, rel=0.02)
    ends = [
        simulate(workload, on_fabric(topology, workload), steps=1, folded=folded).times.end.max()
        for folded in (True, False)
    ]
    assert ends[0] == ends[1]


def test_a_class_of_ranks_loads_links_for_all_that_it_stands_for() -> None:
    """Two sums over two hosts at once, one of eight ranks a host late: seven stand in one class, or each for itself."""
    sent = added("dp", "every", "host")
    workload = sums((("host", 2), ("rank", 8)), EVERY, sent, replace(added("edp", "every", "host"), role="edp"))
    costs = on_fabric(ringwright.fabric("ndv2:2"), workload)
    ends = [
        simulate(workload, costs, steps=1, folded=folded, late={0: 5e-3}).times.end.max() for folded in (True, False)
    ]
    assert float(ends[0]) == pytest.approx(float(ends[1]), rel=1e-6)
