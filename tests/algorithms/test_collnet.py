"""Reduction in the network's switches: CollNet-Direct, CollNet-Chain, NVLS over CollNet, and NCCL's use of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from ringwright.algorithms.blocks.collnet_chain import collnet_chain
from ringwright.algorithms.blocks.collnet_direct import collnet_direct
from ringwright.algorithms.blocks.nvls_collnet import nvls_collnet
from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.algorithms.libraries.nccl_2_4.system import system_of
from ringwright.algorithms.switch_trees import network_switches, switch_trees
from ringwright.bounds.lower_bounds import bound
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from ringwright.model.validity.node_moves import node_moves
from small_fabrics import racks, wrong

pytestmark = pytest.mark.once

PLAIN = [
    "switch:8,sharp=true",
    "leaf-spine:12,per_leaf=4,sharp=true",
    "leaf-spine:7,per_leaf=3,routing=ecmp,sharp=true",
    "fat-tree:16,sharp=true",
    "dgx-a100:4,per_leaf=2,sharp=true",
    "dgx-a100:4,layout=leaf-spine,per_leaf=8,sharp=true",
    "p4d:2,sharp=true",
]
H100 = ["dgx-h100:2,sharp=true", "dgx-h100:4,per_leaf=2,sharp=true", "dgx-h100:3,layout=switch,sharp=true"]
DIRECT_AND_CHAIN = [(block, spec) for block in (collnet_direct, collnet_chain) for spec in [*PLAIN, *H100]]
EVERY = [*DIRECT_AND_CHAIN, *((nvls_collnet, spec) for spec in H100)]
LARGE = 256 << 20


def all_reduce(topology: Topology, size_bytes: int, **more: object) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size_bytes, **more)  # type: ignore[arg-type]


def seconds(program: Program, topology: Topology) -> float:
    return simulate(program, topology, engine="events").time_ps * 1e-12


def ring_s(topology: Topology, size_bytes: int) -> float:
    ring = nccl_2_4(all_reduce(topology, size_bytes), topology, algorithm="ring", protocol="simple", tuning=False)
    return seconds(ring, topology)


@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize(("block", "spec"), EVERY)
def test_every_rank_gets_the_sum(block: Callable[..., Program], spec: str) -> None:
    topology = fabric(spec)
    for size in (0, 4, 3001):
        for segments in (None, 9):
            assert wrong(block(all_reduce(topology, size), topology, segments=segments)) == "", (size, segments)


@pytest.mark.sampled(2, "spec")
@pytest.mark.parametrize(
    ("block", "spec"),
    [(collnet_direct, "fat-tree:16,sharp=true"), *((block, H100[1]) for block in (collnet_chain, nvls_collnet))],
)
def test_few_places_in_a_switch_are_taken_in_turn(block: Callable[..., Program], spec: str) -> None:
    topology = fabric(spec)
    for slots in (1, 3, 8):  # 7 segments: all take turns in one place, or none waits
        program = block(all_reduce(topology, 4 * 1021), topology, segments=7, slots=slots)
        assert wrong(program) == "", slots
        assert check(program, topology=topology) == [], slots


@pytest.mark.parametrize("block", [collnet_direct, collnet_chain, nvls_collnet])
@pytest.mark.parametrize("group", [[0, 8], [3, 1, 9, 2, 8], [*range(9)], [*range(0, 16, 3)], [15, 0]])
def test_groups_may_lie_on_hosts_as_they_like(block: Callable[..., Program], group: list[int]) -> None:
    topology = fabric("dgx-h100:2,sharp=true")
    program = block(Collective("all-reduce", group, 4 * 1021), topology, segments=9)
    assert wrong(program) == ""


@pytest.mark.sampled(5, "*")
@pytest.mark.parametrize(("block", "spec"), EVERY)
@pytest.mark.parametrize("size", [4, LARGE])
def test_time_is_above_the_bound(block: Callable[..., Program], spec: str, size: int) -> None:
    topology = fabric(spec)
    collective = all_reduce(topology, size)
    least = bound(collective, topology, in_network=True, exact=False).time_s
    assert least <= seconds(block(collective, topology), topology)


@pytest.mark.parametrize("block", [collnet_direct, collnet_chain])
@pytest.mark.parametrize(
    "spec", ["switch:8,sharp=true", "leaf-spine:12,per_leaf=4,sharp=true", "fat-tree:16,sharp=true"]
)
def test_a_nic_carries_the_data_once_each_way(block: Callable[..., Program], spec: str) -> None:
    """What is gained is 2(n-1)/n, less the filling of the pipeline: 64 segments over 2 to 8 turns, 10 % at the most."""
    topology = fabric(spec)
    n = topology.n_ranks
    gain = ring_s(topology, LARGE) / seconds(block(all_reduce(topology, LARGE), topology), topology)
    assert 0.9 * 2 * (n - 1) / n < gain < 1.01 * 2 * (n - 1) / n


@pytest.mark.parametrize("block", [collnet_direct, nvls_collnet])
def test_boxes_with_slow_nics_gain_as_much(block: Callable[..., Program]) -> None:
    topology = fabric("dgx-h100:4,nic_rate=10GB/s,sharp=true")
    n = topology.n_ranks
    gain = ring_s(topology, LARGE) / seconds(block(all_reduce(topology, LARGE), topology), topology)
    assert 0.93 * 2 * (n - 1) / n < gain < 1.01 * 2 * (n - 1) / n


@pytest.mark.parametrize("block", [collnet_direct, collnet_chain, nvls_collnet])
def test_both_event_loops_agree(block: Callable[..., Program]) -> None:
    topology = fabric("dgx-h100:2,sharp=true")
    program = block(all_reduce(topology, 1 << 20), topology, segments=9)
    compiled, plain = (simulate(program, topology, engine="events", native=native).time_ps for native in (True, False))
    assert compiled == plain


def test_a_window_of_a_few_segments_is_enough() -> None:
    topology = fabric("leaf-spine:12,per_leaf=4,sharp=true")
    program = collnet_direct(all_reduce(topology, LARGE), topology)
    moves = node_moves(program)
    assert [len(np.unique(moves.places[moves.places[:, 0] == node, 2])) for node in (12, 13, 14, 15)] == [6] * 4
    least = bound(program.collective, topology, in_network=True, exact=False).time_s
    assert seconds(program, topology) < 1.06 * least


def test_leaves_hang_below_spines_in_turn() -> None:
    topology = fabric("leaf-spine:12,per_leaf=4,spines=2,sharp=true")
    one, two = switch_trees("test", all_reduce(topology, 4), topology, [range(12), range(12)])
    assert [topology.label(node) for node in one.switches] == ["spine0", "leaf0", "leaf1", "leaf2"]
    assert topology.label(two.switches[0]) == "spine1"
    assert one.parents == (-1, 0, 0, 0)
    assert one.leaf_of == (1,) * 4 + (2,) * 4 + (3,) * 4
    assert (one.depth, one.height, one.fan_in) == ((0, 1, 1, 1), (1, 0, 0, 0), (3, 4, 4, 4))


def test_switches_that_cannot_add_are_passed_by() -> None:
    topology = fabric("leaf-spine:12,per_leaf=4,spines=1,sharp=true")
    spine = {topology.find("spine0"): topology.aggregators[topology.find("spine0")]}
    only = dataclasses.replace(topology, aggregators=spine)
    (tree,) = switch_trees("test", all_reduce(only, 4), only, [range(0, 12, 4)])
    assert (tree.switches, tree.leaf_of, tree.top) == ((topology.find("spine0"),), (0, 0, 0), 0)
    with pytest.raises(UsageError, match="no aggregating switch on the way from rank0"):
        collnet_direct(all_reduce(only, 4), only)  # rank 1 is reached through the leaf alone


def test_three_tiers_make_a_tree_of_three() -> None:
    topology = fabric("fat-tree:16,sharp=true")
    (tree,) = switch_trees("test", all_reduce(topology, 4), topology, [range(16)])
    assert tree.top == 2
    assert tree.fan_in[0] > 1


def test_switches_inside_boxes_are_not_of_the_network() -> None:
    assert not network_switches(fabric("dgx-h100:2"))
    assert not network_switches(None)
    topology = fabric("dgx-h100:2,sharp=true")
    assert {topology.label(node)[:4] for node in network_switches(topology)} == {"leaf", "spin"}


@pytest.mark.parametrize("block", [collnet_direct, collnet_chain, nvls_collnet])
def test_what_is_declined(block: Callable[..., Program]) -> None:
    topology = fabric("dgx-h100:2,sharp=true")
    whole = all_reduce(topology, 64)
    cases = [
        (dataclasses.replace(whole, op="broadcast"), topology, "does no broadcast"),
        (whole, fabric("dgx-h100:2"), "no switch of this network aggregates"),
        (Collective("all-reduce", range(8), 64), topology, "all ranks are on one"),
        (dataclasses.replace(whole, reduce_op="prod"), topology, "does not add by prod"),
    ]
    for collective, machine, reason in cases:
        with pytest.raises(UsageError, match=reason):
            block(collective, machine)
    with pytest.raises(UsageError, match="segments=0 is below 1"):
        block(whole, topology, segments=0)
    assert block(Collective("all-reduce", [5], 64), topology).n_steps == 0


def test_more_below_a_switch_than_it_takes_is_declined() -> None:
    topology = fabric("switch:65,sharp=true")
    with pytest.raises(UsageError, match="contributions, not 65"):
        collnet_direct(all_reduce(topology, 64), topology)
    with pytest.raises(UsageError, match="no switch of this network"):
        collnet_direct(Collective("all-reduce", range(6), 64), racks(2, 3))


def test_heads_may_be_fewer_than_gpus() -> None:
    topology = fabric("p4d:2,sharp=true")
    program = collnet_direct(all_reduce(topology, 4 * 1021), topology, heads=4, segments=9)
    assert wrong(program) == ""
    assert program.layout.n_chunks == 36
    with pytest.raises(UsageError, match="heads=9 is not between"):
        collnet_direct(all_reduce(topology, 64), topology, heads=9)


# ------------------------------------------------------------------------------------------------------------- NCCL
def test_nccl_knows_whether_the_network_adds() -> None:
    for spec, adds, nvls in (
        ("dgx-h100:2", False, True),
        ("dgx-h100:2,sharp=true", True, True),
        ("p4d:2,sharp=true", True, False),
    ):
        topology = fabric(spec)
        system = system_of(all_reduce(topology, 4), topology)
        assert (system.collnet, system.nvls) == (adds, nvls), spec
        assert system.collnet_heads == (0 if not adds else 4 if spec.startswith("p4d") else 8)
        assert bool(system.graphs.collnet_chain.channels) == adds


@pytest.mark.parametrize("algorithm", ["collnet_direct", "collnet_chain", "nvls"])
@pytest.mark.parametrize(("size", "most_s"), [(1 << 10, 100e-6), (LARGE, 1.3e-3)])
def test_nccl_builds_what_is_forced(algorithm: str, size: int, most_s: float) -> None:
    topology = fabric("dgx-h100:4,sharp=true")
    program = nccl_2_4(all_reduce(topology, size), topology, algorithm=algorithm)
    assert (program.protocol, program.knobs["algorithm"]) == ("simple", algorithm)
    assert {topology.label(node)[:4] for node in program.aggregators} >= {"leaf"}
    least = bound(program.collective, topology, in_network=True, exact=False).time_s
    assert least < seconds(program, topology) < most_s
    with pytest.raises(UsageError):
        nccl_2_4(all_reduce(topology, size), fabric("dgx-h100:4"), algorithm=algorithm)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("release", ["2.12", "2.18", "2.30"])
@pytest.mark.parametrize("spec", ["dgx-h100:4,sharp=true", "dgx-a100:4,sharp=true", "leaf-spine:12,sharp=true"])
def test_nccl_builds_what_it_chooses(release: str, spec: str) -> None:
    topology = fabric(spec)
    chosen = [nccl_2_4(all_reduce(topology, size), topology, release=release) for size in (1 << 10, 1 << 20)]
    assert any(program.aggregators for program in chosen)
    assert [wrong(program) for program in chosen] == ["", ""]


def test_a_round_trip_through_the_network_costs_its_table_once() -> None:
    topology = fabric("dgx-h100:4,per_leaf=2,sharp=true")
    collective = all_reduce(topology, 1 << 10)
    tuned = nccl_2_4(collective, topology, algorithm="collnet_direct")
    bare = nccl_2_4(collective, topology, algorithm="collnet_direct", tuning=False)
    assert tuned.software.base_s == pytest.approx(31e-6)
    assert seconds(tuned, topology) - seconds(bare, topology) == pytest.approx((31 + 2 * 3.7) * 1e-6, rel=0.01)
