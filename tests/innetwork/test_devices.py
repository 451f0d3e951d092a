"""NetReduce and AllReduce-Switch: devices that add floats as they are, with messages in a window or slots."""

from __future__ import annotations

import dataclasses

import pytest

from ringwright.algorithms.innetwork.ethernet.allreduce_switch import allreduce_switch
from ringwright.algorithms.innetwork.ethernet.netreduce import netreduce
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from small_fabrics import wrong

pytestmark = pytest.mark.once

DEVICE = "switch:8,switches=fpga,rate=10Gb/s,latency_s=1us"


def all_reduce(topology: Topology, size_bytes: int, **more: object) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size_bytes, **more)  # type: ignore[arg-type]


def seconds(program: Program, topology: Topology, engine: str = "flows") -> float:
    return simulate(program, topology, engine=engine).time_s


@pytest.mark.parametrize("system", [allreduce_switch, netreduce])
@pytest.mark.parametrize("spec", [DEVICE, "leaf-spine:12,per_leaf=4,switches=fpga", "dgx-a100:2,sharp=true"])
def test_every_rank_gets_the_sum_by_a_legal_program(system: object, spec: str) -> None:
    topology = fabric(spec)
    for size in (0, 4, 3004):
        program = system(all_reduce(topology, size), topology, segments=3)  # type: ignore[operator]
        assert wrong(program) == "", size
        assert check(program, topology=topology) == [], size


def test_an_adder_as_wide_as_the_ports_stops_none_and_a_narrower_one_does() -> None:
    topology = fabric(DEVICE)
    collective = all_reduce(topology, 8 << 20)
    times = []
    for factor in (2.0, 1.0, 0.5):
        able = {
            node: dataclasses.replace(each, reduce_rate=10e9 * factor) for node, each in topology.aggregators.items()
        }
        machine = dataclasses.replace(topology, aggregators=able)
        times.append(seconds(allreduce_switch(collective, machine), machine, "events"))
    wide, whole, half = times
    assert wide == pytest.approx(whole, rel=0.02)
    assert half == pytest.approx(2 * whole, rel=0.05)


def test_a_window_of_messages_is_what_the_device_holds() -> None:
    topology = fabric("switch:4,sharp=true,latency_s=20us")
    collective = all_reduce(topology, 4 << 20)
    small, twice, long = (
        netreduce(collective, topology, **knobs)
        for knobs in ({"window": 1}, {"window": 2}, {"window": 1, "message_bytes": 128 << 10})
    )
    assert small.streams[0].slots * 1024 == 64 << 10
    assert (small.streams[0].loss, small.streams[0].versions, small.knobs["window"]) == ("go-back-n", 1, 1)
    assert seconds(small, topology) == pytest.approx(2 * seconds(twice, topology), rel=0.05)
    assert seconds(twice, topology) == seconds(long, topology)
    assert netreduce(collective, topology, payload=64).streams[0].payload_bytes == 256


def test_what_is_not_there_is_declined_with_a_remedy() -> None:
    device = fabric(DEVICE)
    for system, topology, why, knobs in (
        (allreduce_switch, fabric("switch:9,switches=fpga"), "at most 8 contributions", {}),
        (allreduce_switch, fabric("switch:4,switches=tofino"), "does not add float32", {}),
        (netreduce, fabric("switch:4"), "no switch of this network", {}),
        (netreduce, device, "memory", {"window": 1024}),
        (netreduce, device, "less than a packet", {"window": 1, "message_bytes": 1024, "payload": 1024}),
    ):
        with pytest.raises(UsageError, match=why) as refused:
            system(all_reduce(topology, 4 << 20), topology, **knobs)
        assert refused.value.remedy
    with pytest.raises(UsageError, match="does not add int32"):
        allreduce_switch(all_reduce(device, 64, dtype="int32"), device)


def test_slots_and_heads_are_as_asked() -> None:
    boxes = fabric("dgx-a100:2,sharp=true")
    made = allreduce_switch(all_reduce(boxes, 1 << 20), boxes, slots=16, heads=2, payload=128, timeout_s=5e-3)
    stream = made.streams[0]
    assert (stream.slots, made.knobs["heads"], stream.payload_bytes, stream.timeout_s) == (16, 2, 512, 5e-3)
    assert netreduce(all_reduce(boxes, 1 << 20), boxes, heads=4).knobs["heads"] == 4
