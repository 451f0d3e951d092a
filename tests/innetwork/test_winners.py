"""The map of winners: which architecture an all-reduce takes on which machine, at which size."""

from __future__ import annotations

import pytest

from ringwright.algorithms.innetwork.ethernet.inc_meets_distributed_ml import inc_meets_distributed_ml, programs
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from small_fabrics import wrong

pytestmark = pytest.mark.once

ADDING, PLAIN = "switch:8,sharp=true", "switch:8"


def all_reduce(topology: Topology, size_bytes: int) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size_bytes)


@pytest.mark.parametrize(
    ("spec", "size", "winners"),
    [
        (ADDING, 8, {"llt"}),
        (ADDING, 4 << 20, {"sat"}),
        ("switch:8,switches=tofino", 4 << 20, {"pool"}),
        (PLAIN, 4 << 20, {"ring"}),
        (PLAIN, 8, {"tree", "server"}),
    ],
)
def test_the_winner_is_the_quickest_of_what_the_machine_can_do(spec: str, size: int, winners: set[str]) -> None:
    topology = fabric(spec)
    collective = all_reduce(topology, size)
    made = inc_meets_distributed_ml(collective, topology)
    assert made.knobs["algorithm"] in winners
    times = [simulate(each, topology).time_ps for each in programs(collective, topology).values()]
    assert simulate(made, topology).time_ps <= 1.001 * min(times)
    assert wrong(made) == ""
    assert check(made, topology=topology) == []


@pytest.mark.parametrize("architecture", ["ring", "tree", "server", "llt", "sat", "pool"])
def test_an_architecture_may_be_asked_for(architecture: str) -> None:
    topology = fabric(ADDING)
    made = inc_meets_distributed_ml(all_reduce(topology, 4096), topology, architecture=architecture)  # type: ignore[arg-type]
    assert (made.name, made.knobs["algorithm"]) == ("inc-meets-distributed-ml", architecture)
    assert bool(made.aggregators) is (architecture in ("llt", "sat", "pool"))


def test_two_ranks_gain_nothing_in_the_network_and_many_less_than_twice() -> None:
    for n, gain in ((2, 1.0), (16, 1.875)):
        topology = fabric(f"switch:{n},sharp=true")
        able = programs(all_reduce(topology, 256 << 20), topology)
        ring_s, switched_s = (simulate(able[each], topology).time_s for each in ("ring", "sat"))
        assert ring_s / switched_s == pytest.approx(gain, rel=0.03)


def test_jobs_that_share_a_pool_have_a_part_of_it_each() -> None:
    topology = fabric("switch:4,switches=tofino,rate=100Gb/s,latency_s=50us")
    collective = all_reduce(topology, 1 << 20)
    slots, times = [], []
    for jobs in (1, 64, 1024):
        made = inc_meets_distributed_ml(collective, topology, architecture="pool", jobs=jobs)
        slots.append(made.streams[0].slots)
        times.append(simulate(made, topology, engine="flows").time_s)
    assert slots == [2048, 128, 8]
    assert times == sorted(times)
    assert times[2] > 10 * times[0]


def test_what_cannot_be_done_is_declined_with_a_remedy() -> None:
    plain = fabric(PLAIN)
    with pytest.raises(UsageError, match="no switch of this network aggregates"):
        inc_meets_distributed_ml(all_reduce(plain, 64), plain, architecture="sat")
    with pytest.raises(UsageError, match="on a known machine alone") as refused:
        inc_meets_distributed_ml(all_reduce(plain, 64))
    assert "architecture=ring" in str(refused.value.remedy)
