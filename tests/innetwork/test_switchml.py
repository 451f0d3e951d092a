"""SwitchML: what a pool of slots carries, how long it takes, and what it declines."""

from __future__ import annotations

import dataclasses

import pytest

from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.innetwork.ethernet.switchml import switchml
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from small_fabrics import wrong

pytestmark = pytest.mark.once

RACK = "leaf-spine:4,layout=switch,rate=100Gb/s,switches=tofino"
LEAVES = "leaf-spine:12,per_leaf=4,switches=tofino"
BOXES = "dgx-a100:2,sharp=true"


def all_reduce(topology: Topology, size_bytes: int, **more: object) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size_bytes, **more)  # type: ignore[arg-type]


def seconds(program: Program, topology: Topology) -> float:
    return simulate(program, topology, engine="flows").time_s


@pytest.mark.parametrize("spec", [RACK, LEAVES, BOXES])
def test_every_rank_gets_the_sum_by_a_legal_program(spec: str) -> None:
    topology = fabric(spec)
    for size in (0, 4, 3004, 4 * 10_240):
        program = switchml(all_reduce(topology, size), topology, segments=3)
        assert wrong(program) == "", size
        assert check(program, topology=topology) == [], size


def test_time_does_not_grow_with_the_workers_where_a_ring_s_does() -> None:
    fours, eights = (fabric(RACK.replace(":4", f":{n}")) for n in (4, 8))
    size = 16 << 20
    few, many = (seconds(switchml(all_reduce(each, size), each), each) for each in (fours, eights))
    assert many == pytest.approx(few, rel=1e-6)
    for topology, gain in ((fours, 1.5), (eights, 1.75)):
        rings = seconds(ring(all_reduce(topology, size)), topology)
        assert rings / few == pytest.approx(gain, rel=0.02)


def test_slots_below_a_round_trip_bound_the_rate_and_more_do_not_help() -> None:
    topology = fabric(f"{RACK},latency_s=10us")
    collective = all_reduce(topology, 8 << 20)
    usual = seconds(switchml(collective, topology), topology)
    assert seconds(switchml(collective, topology, slots=2048), topology) == pytest.approx(usual)
    few = seconds(switchml(collective, topology, slots=64), topology)
    packet_s = 20e-6 + 2 * 1024 / 12.5e9  # two links of a round trip, and the packet's bytes on the way up and down
    assert few == pytest.approx((8 << 20) / (64 * 1024) * packet_s, rel=0.02)
    assert few > 3 * usual


def test_a_smaller_payload_makes_the_same_slots_hold_less() -> None:
    topology = fabric(f"{RACK},latency_s=10us")
    collective = all_reduce(topology, 4 << 20)
    large, small = (seconds(switchml(collective, topology, slots=64, payload=each), topology) for each in (256, 64))
    assert small == pytest.approx(4 * large, rel=0.05)


def test_usual_slots_are_a_power_of_two_that_fills_the_round_trip_or_the_memory() -> None:
    topology = fabric(RACK)
    stream = switchml(all_reduce(topology, 1 << 20), topology).streams[0]
    assert (stream.slots, stream.versions, stream.payload_bytes) == (512, 2, 1024)
    assert (stream.codec, stream.loss, stream.timeout_s) == ("block-exponent", "host-timer", 10e-3)
    small = {node: dataclasses.replace(able, memory_bytes=100 << 10) for node, able in topology.aggregators.items()}
    tight = dataclasses.replace(topology, aggregators=small)
    assert switchml(all_reduce(tight, 1 << 20), tight).streams[0].slots == 32
    none = dataclasses.replace(
        topology, aggregators={node: dataclasses.replace(able, memory_bytes=2047) for node, able in small.items()}
    )
    with pytest.raises(UsageError, match="memory: one slot"):
        switchml(all_reduce(none, 1 << 20), none)


def test_numbers_go_as_the_switches_can_add_them() -> None:
    rack, quantum = fabric(RACK), fabric("switch:4,sharp=true")
    assert switchml(all_reduce(rack, 64, dtype="int32"), rack).streams[0].codec == "native"
    assert switchml(all_reduce(quantum, 64, dtype="bfloat16"), quantum).streams[0].codec == "native"
    assert switchml(all_reduce(quantum, 64, dtype="bfloat16"), quantum).streams[0].payload_bytes == 512
    with pytest.raises(UsageError, match="common exponent") as refused:
        switchml(all_reduce(quantum, 64), quantum, codec="block-exponent")
    assert "codec=native" in str(refused.value.remedy)
    with pytest.raises(UsageError, match="carries float32"):
        switchml(all_reduce(rack, 64, dtype="float16"), rack, codec="block-exponent")
    with pytest.raises(UsageError, match="does not add float32"):
        switchml(all_reduce(rack, 64), rack, codec="native")


@pytest.mark.parametrize(
    ("spec", "knobs", "why"),
    [
        ("switch:4", {}, "no switch of this network aggregates"),
        ("switch:33,switches=tofino", {}, "at most 32 contributions, not 33"),
        (RACK, {"payload": 257}, "takes 1,024 B a packet"),
        (RACK, {"slots": 8193}, "memory"),
    ],
)
def test_what_a_switch_cannot_do_is_declined_with_a_remedy(spec: str, knobs: dict[str, int], why: str) -> None:
    topology = fabric(spec)
    with pytest.raises(UsageError, match=why) as refused:
        switchml(all_reduce(topology, 1 << 20), topology, **knobs)  # type: ignore[arg-type]
    assert refused.value.remedy


def test_only_all_reduce_is_done() -> None:
    with pytest.raises(UsageError, match="does no broadcast"):
        switchml(Collective("broadcast", range(4), 64), fabric(RACK))


def test_one_head_of_a_host_sends_all_of_its_data() -> None:
    topology = fabric(BOXES)
    collective = all_reduce(topology, 8 << 20)
    one, eight = (switchml(collective, topology, heads=each) for each in (1, None))
    assert (one.knobs["heads"], eight.knobs["heads"]) == (1, 8)
    assert seconds(one, topology) > 3 * seconds(eight, topology)


def test_a_timer_mends_losses_and_takes_its_time() -> None:
    quiet = fabric(RACK)
    lossy = dataclasses.replace(quiet, loss=quiet.rate * 0 + 1e-3)
    collective = all_reduce(quiet, 8 << 20)
    calm, short, long = (
        seconds(switchml(collective, on, timeout_s=timer), on)
        for on, timer in ((quiet, 10e-3), (lossy, 10e-3), (lossy, 20e-3))
    )
    assert calm < short < long
    assert long - calm == pytest.approx(2 * (short - calm), rel=0.1)  # what timers cost, and a little of what they hide
    adaptive = seconds(switchml(collective, lossy, timer="adaptive"), lossy)
    assert adaptive > calm
    assert (
        seconds(switchml(collective, quiet, timeout_s=1e-4, timer="adaptive", slots=4096), quiet) > 0
    )  # it waits longer
    with pytest.raises(InfeasibleError, match="expires before an answer"):
        seconds(switchml(collective, quiet, timeout_s=1e-6), quiet)  # below what may be typed


def test_more_latency_makes_nothing_faster() -> None:
    times = []
    for latency in ("0.1us", "1us", "10us", "100us"):
        topology = fabric(f"{RACK},latency_s={latency}")
        times.append(seconds(switchml(all_reduce(topology, 1 << 20), topology), topology))
    assert times == sorted(times)
