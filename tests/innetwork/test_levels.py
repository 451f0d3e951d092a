"""Hierarchical algorithms whose last level is one in the network: reduce in the host, aggregate in the switches."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import ringwright
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.innetwork.ethernet.switchml import switchml
from ringwright.algorithms.innetwork.infiniband.sharp import sharp
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.algorithms.published.torus_2d_allreduce import torus_2d_allreduce
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from small_fabrics import wrong

pytestmark = pytest.mark.once

ONE_LEAF, TWO_LEVELS = "dgx-a100:2,sharp=true", "dgx-a100:4,per_leaf=2,switches=tofino"


def all_reduce(topology: Topology, size_bytes: int) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size_bytes)


@pytest.mark.parametrize("spec", [ONE_LEAF, TWO_LEVELS])
@pytest.mark.parametrize("outer", [switchml, functools.partial(switchml, segments=3, slots=64)])
def test_groups_of_the_last_level_have_trees_of_their_own(spec: str, outer: functools.partial[object]) -> None:
    topology = fabric(spec)
    for size in (0, 4, 3004, 32 * 1024):
        program = blueconnect(all_reduce(topology, size), topology, outer=outer)  # type: ignore[arg-type]
        assert wrong(program) == "", size
        assert check(program, topology=topology) == [], size
    assert len({stream.channels for stream in program.streams}) == program.p // program.knobs["factors"][-1]  # type: ignore[index]


def test_sharp_and_a_torus_do_as_well() -> None:
    topology = fabric("dgx-h100:2,sharp=true")
    for program in (
        blueconnect(all_reduce(topology, 4096), topology, outer=sharp),
        torus_2d_allreduce(all_reduce(topology, 4096), topology, x=8, outer=switchml),
    ):
        assert wrong(program) == ""
        assert check(program, topology=topology) == []


def test_a_system_is_known_whatever_wraps_it() -> None:
    topology = fabric(ONE_LEAF)
    plain = blueconnect(all_reduce(topology, 4096), topology, outer=switchml)

    @functools.wraps(switchml)
    def wrapped(*given: Any, **knobs: Any) -> Any:
        return switchml(*given, **knobs)

    for outer in (ringwright.algorithm("switchml"), functools.partial(wrapped)):
        program = blueconnect(all_reduce(topology, 4096), topology, outer=outer)
        assert program.aggregators == plain.aggregators
        assert wrong(program) == ""


def test_pools_of_all_groups_share_the_memory_of_a_switch() -> None:
    topology = fabric(TWO_LEVELS)
    size = 8 << 20
    wanted = blueconnect(all_reduce(topology, size), topology, outer=functools.partial(switchml, slots=8192))
    assert check(wanted, topology=topology) == []
    assert max(stream.slots for stream in wanted.streams) < 8192


def test_slow_nics_gain_what_a_ring_sends_twice() -> None:
    topology = fabric("dgx-a100:8,nic_rate=5GB/s,sharp=true")
    collective = all_reduce(topology, 64 << 20)
    switched, rings = (
        simulate(blueconnect(collective, topology, outer=outer), topology, engine="flows").time_s
        for outer in (switchml, ring)
    )
    assert 1.4 < rings / switched <= 2 * 7 / 8


def test_what_no_level_can_be_is_refused() -> None:
    topology = fabric(ONE_LEAF)
    with pytest.raises(UsageError, match="on a known machine alone"):
        blueconnect(Collective("all-reduce", range(16), 4096), factors=(8, 2), outer=switchml)
    with pytest.raises(UsageError, match="does no reduce-scatter"):
        blueconnect(all_reduce(topology, 4096), topology, inner=switchml)
    quantum = fabric("dgx-a100:2,switches=quantum")
    refused = functools.partial(sharp, mode="sat", held=1)
    with pytest.raises(UsageError, match="do all rows in the network alike"):
        blueconnect(all_reduce(quantum, 4096), quantum, outer=refused)
