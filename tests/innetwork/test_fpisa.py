"""FPISA: SwitchML's pools with split floats, on switches that have the units for it and on one that has not."""

from __future__ import annotations

import pytest

from ringwright.algorithms.innetwork.ethernet.fpisa import fpisa
from ringwright.algorithms.innetwork.ethernet.switchml import switchml
from ringwright.calls.numerics import numerics
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.calls.sums import MOST_NUMBERS
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from small_fabrics import wrong

pytestmark = pytest.mark.once

RACK = "leaf-spine:4,layout=switch,rate=100Gb/s,switches={}"


def all_reduce(topology: Topology, size_bytes: int, **more: object) -> Collective:
    return Collective("all-reduce", range(topology.n_ranks), size_bytes, **more)  # type: ignore[arg-type]


def seconds(program: Program, topology: Topology) -> float:
    return simulate(program, topology, engine="flows").time_s


@pytest.mark.parametrize("switches", ["fpisa", "tofino-fpisa"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_rank_gets_the_sum_by_a_legal_program(switches: str, dtype: str) -> None:
    topology = fabric(RACK.format(switches))
    for size in (0, 4, 3004):
        program = fpisa(all_reduce(topology, size, dtype=dtype), topology, segments=3)
        assert wrong(program) == "", size
        assert check(program, topology=topology) == [], size
        assert {stream.codec for stream in program.streams} == {"split-float"}


def test_as_many_elements_in_a_packet_take_as_long_as_switchml_s() -> None:
    split, whole = (fabric(RACK.format(each)) for each in ("fpisa", "tofino"))
    theirs = seconds(switchml(all_reduce(whole, 4 << 20), whole), whole)
    assert seconds(fpisa(all_reduce(split, 4 << 20), split), split) == theirs


def test_a_packet_holds_what_the_switch_takes() -> None:
    topologies = [fabric(RACK.format(each)) for each in ("fpisa", "tofino-fpisa")]
    full, single = (fpisa(all_reduce(each, 1 << 20), each).streams[0] for each in topologies)
    assert (full.payload_bytes, single.payload_bytes) == (1024, 4)
    assert fpisa(all_reduce(topologies[0], 1 << 20, dtype="float16"), topologies[0]).streams[0].payload_bytes == 512
    with pytest.raises(UsageError, match="takes 4 B a packet"):
        fpisa(all_reduce(topologies[1], 1 << 20), topologies[1], payload=2)


def test_one_float_a_packet_is_bound_by_the_slots() -> None:
    topology = fabric(RACK.format("tofino-fpisa"))
    collective = all_reduce(topology, 1 << 20)
    one, more = (seconds(fpisa(collective, topology, slots=each), topology) for each in (256, 512))
    assert one == pytest.approx(2 * more, rel=0.02)


@pytest.mark.parametrize(
    ("switches", "more", "why"),
    [
        ("tofino", {}, "do not split floats"),
        ("plain", {}, "no switch of this network aggregates"),
        ("fpisa", {"dtype": "bfloat16"}, "carries float16 and float32"),
        ("fpisa", {"reduce_op": "max"}, "does not add by max"),
    ],
)
def test_what_is_not_there_is_declined_with_a_remedy(switches: str, more: dict[str, str], why: str) -> None:
    topology = fabric(RACK.format(switches))
    with pytest.raises(UsageError, match=why) as refused:
        fpisa(all_reduce(topology, 1 << 20, **more), topology)
    assert refused.value.remedy


def test_knobs_are_those_of_the_pool() -> None:
    topology = fabric("dgx-a100:2,switches=fpisa")
    made = fpisa(all_reduce(topology, 1 << 20), topology, heads=2, segments=5, timeout_s=20e-3)
    assert (made.knobs["heads"], made.knobs["segments"], made.streams[0].timeout_s) == (2, 5, 20e-3)


def test_the_variant_is_what_the_sums_are_worth_and_no_time() -> None:
    topology = fabric(RACK.format("fpisa"))
    collective = all_reduce(topology, 32 << 10)
    full, approximate, narrow = (
        fpisa(collective, topology, **knobs)  # type: ignore[arg-type]
        for knobs in ({}, {"variant": "approximate"}, {"variant": "approximate", "shift": 1})
    )
    assert seconds(full, topology) == seconds(approximate, topology) == seconds(narrow, topology)
    worth = [numerics(each, topology) for each in (full, approximate, narrow)]
    assert worth[0].deviation.relative_rms < 1e-6 < 1e-2 < worth[1].deviation.relative_rms
    assert worth[0].overwrites == 0 < worth[1].overwrites < worth[2].overwrites
    saturated = numerics(fpisa(collective, topology, variant="approximate", shift=20, overflow="saturate"), topology)
    assert saturated.overflows > 0
    assert saturated != numerics(fpisa(collective, topology, variant="approximate", shift=20), topology)


def test_the_full_form_has_no_farthest_newcomer() -> None:
    topology = fabric(RACK.format("fpisa"))
    with pytest.raises(UsageError, match="shift is how far"):
        fpisa(all_reduce(topology, 4), topology, shift=3)


def test_simulate_says_what_sums_are_worth() -> None:
    question = SimulationSpec("all-reduce", fabric(RACK.format("fpisa")))
    told = sweep(
        question, ["fpisa", "fpisa:variant=approximate", "ring", "switchml:codec=block-exponent"], [1 << 10, 1 << 20]
    )
    worth = {each["algorithm"]: each for each in told["sums"]}
    assert list(worth) == ["fpisa", "fpisa:variant=approximate", "switchml:codec=block-exponent"]
    assert worth["fpisa"]["relative_rms"] < 1e-6 < worth["fpisa:variant=approximate"]["relative_rms"]
    assert worth["fpisa:variant=approximate"]["overwrites"] > 0
    assert worth["fpisa"]["size_bytes"] == 4 * (MOST_NUMBERS // 4)
    assert sweep(question, ["fpisa"], [1 << 10], sums_too=False)["sums"] == []
