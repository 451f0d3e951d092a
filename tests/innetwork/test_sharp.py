"""SHARP: low latency and streaming trees, their locks, and NVLink SHARP inside the hosts."""

from __future__ import annotations

import dataclasses

import pytest

from ringwright.algorithms.innetwork.infiniband.sharp import sharp
from ringwright.bounds.lower_bounds import bound
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from small_fabrics import wrong

pytestmark = pytest.mark.once

RACK, BOXES, H100 = "switch:4,sharp=true", "dgx-a100:2,switches=quantum", "dgx-h100:2,sharp=true"


def all_reduce(topology: Topology, size_bytes: int, **more: object) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size_bytes, **more)  # type: ignore[arg-type]


def seconds(program: Program, topology: Topology) -> float:
    return simulate(program, topology, engine="flows").time_s


@pytest.mark.parametrize("spec", [RACK, BOXES, H100])
@pytest.mark.parametrize("mode", ["llt", "sat"])
def test_every_rank_gets_the_sum_by_a_legal_program(spec: str, mode: str) -> None:
    topology = fabric(spec)
    for size in (0, 4, 3004):
        program = sharp(all_reduce(topology, size), topology, mode=mode, segments=3)  # type: ignore[arg-type]
        assert wrong(program) == "", size
        assert check(program, topology=topology) == [], size


def test_pieces_that_are_all_outstanding_take_the_low_latency_tree() -> None:
    topology = fabric(RACK)
    small, large = (sharp(all_reduce(topology, size), topology) for size in (23 * 1024, 23 * 1024 + 4))
    assert (small.knobs["algorithm"], large.knobs["algorithm"]) == ("llt", "sat")
    assert (small.streams[0].slots, small.streams[0].payload_bytes) == (23, 1024)
    few = sharp(all_reduce(topology, 1024), topology, osts=2, ost_bytes=256)
    assert few.knobs["algorithm"] == "sat"


def test_few_operations_outstanding_are_slower_than_a_stream() -> None:
    topology = fabric("switch:4,sharp=true,latency_s=5us")
    collective = all_reduce(topology, 4 << 20)
    stream, many, few = (
        seconds(sharp(collective, topology, **knobs), topology)
        for knobs in ({"mode": "sat"}, {"mode": "llt"}, {"mode": "llt", "osts": 1})
    )
    assert stream < many < few
    assert few == pytest.approx(23 * many, rel=0.1)


def test_a_switch_of_quantum_has_one_lock_and_one_of_quantum_2_has_one_a_port() -> None:
    shared = "dgx-a100:4,layout=leaf-spine,per_leaf=32,switches={}"
    kinds = {}
    for switches in ("quantum", "quantum-2"):
        topology = fabric(shared.format(switches))
        made = sharp(all_reduce(topology, 1 << 20), topology)
        kinds[switches] = made.knobs["algorithm"]
        assert wrong(sharp(all_reduce(topology, 4096), topology, mode="sat")) == ""
    assert kinds == {"quantum": "ring, no lock", "quantum-2": "sat"}
    rails = fabric(BOXES)
    assert sharp(all_reduce(rails, 1 << 20), rails).knobs["algorithm"] == "sat"
    refused = sharp(all_reduce(rails, 1 << 20), rails, held=1)
    assert refused.knobs["algorithm"] == "ring, no lock"
    assert not refused.aggregators
    assert not refused.streams


def test_low_latency_trees_need_no_lock() -> None:
    topology = fabric(BOXES)
    assert sharp(all_reduce(topology, 64), topology, held=1).knobs["algorithm"] == "llt"
    joined = fabric("dgx-a100:4,layout=leaf-spine,per_leaf=32,switches=quantum")
    one = sharp(all_reduce(joined, 64), joined)
    assert (one.knobs["algorithm"], one.knobs["heads"]) == ("llt", 1)
    assert check(one, topology=joined) == []
    with pytest.raises(UsageError, match="fewer trees"):
        sharp(all_reduce(joined, 64), joined, heads=8)


def test_with_nvlink_sharp_the_time_is_within_five_percent_of_what_no_program_can_beat() -> None:
    topology = fabric("dgx-h100:4,sharp=true")
    collective = all_reduce(topology, 256 << 20)
    least = bound(collective, topology, in_network=True, exact=False).time_s
    taken = simulate(sharp(collective, topology), topology, engine="events").time_s
    assert least <= taken < 1.05 * least


def test_heads_and_segments_are_as_asked() -> None:
    topology = fabric(H100)
    made = sharp(all_reduce(topology, 8 << 20), topology, heads=4, segments=7)
    assert (made.knobs["heads"], made.knobs["segments"]) == (4, 7)


@pytest.mark.parametrize(
    ("spec", "more", "why"),
    [
        ("switch:4", {}, "no switch of this network aggregates"),
        ("switch:4,switches=quantum", {"dtype": "bfloat16"}, "does not add bfloat16"),
        ("switch:41,switches=quantum", {}, "at most 40 contributions"),
        ("dgx-h100:1", {}, "no switch of this network aggregates"),
    ],
)
def test_what_a_fabric_cannot_do_is_declined_with_a_remedy(spec: str, more: dict[str, str], why: str) -> None:
    topology = fabric(spec)
    with pytest.raises(UsageError, match=why) as refused:
        sharp(all_reduce(topology, 1 << 20, **more), topology)
    assert refused.value.remedy


def test_a_tree_of_one_switch_adds_no_hop_to_a_larger_latency() -> None:
    times = []
    for latency in ("0.1us", "1us", "10us"):
        topology = fabric(f"switch:8,sharp=true,latency_s={latency}")
        times.append(seconds(sharp(all_reduce(topology, 8), topology), topology))
    assert times == sorted(times)
    assert times[2] == pytest.approx(20e-6, rel=0.01)


def test_locks_are_those_of_every_switch_on_the_way() -> None:
    topology = fabric("leaf-spine:8,per_leaf=4,sharp=true")
    spine = max(topology.aggregators)
    busy = dict(topology.aggregators) | {
        node: dataclasses.replace(able, concurrency=0) for node, able in topology.aggregators.items() if node > 9
    }
    assert spine > 9
    without = dataclasses.replace(topology, aggregators=busy)
    assert sharp(all_reduce(without, 1 << 20), without).knobs["algorithm"] == "ring, no lock"
