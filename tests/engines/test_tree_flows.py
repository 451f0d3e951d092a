"""A stream through switches that add and copy is one flow: exact by its closed form, and how far from the event engine."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import ringwright
from ringwright.bounds.lower_bounds import lowest
from ringwright.engines import events, flat, flows
from ringwright.engines.choose import simulate
from ringwright.engines.folding.fold import fold
from ringwright.engines.machine import Machine
from ringwright.engines.messages import MessageGraph
from ringwright.engines.switch_slots import machines
from ringwright.engines.tree_flows import with_carriers
from ringwright.ground.errors import DeclinedError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.registry import algorithm
from ringwright.model.topology import Fault, Topology

TREE = "leaf-spine:12,per_leaf=4,sharp=true"


def asked(name: str, topology: Topology, size_bytes: int) -> Program:
    _, make, knobs = algorithm(name)
    return make(Collective("all-reduce", range(topology.n_ranks), size_bytes), topology, **knobs)


def laid_out(program: Program, topology: Topology) -> tuple[MessageGraph, Machine]:
    (made,) = machines([program], topology)
    return flat.flatten(program, made), made.carrying(program)


@pytest.mark.parametrize("segments", [1, 7, 64])
def test_it_takes_the_bytes_at_the_slowest_link_and_the_latencies_once(segments: int) -> None:
    """S / B + 2 depth alpha, whatever the segments: three leaves under a spine are four links up and down."""
    top, size = ringwright.fabric(TREE), 1 << 26
    run = simulate(asked(f"collnet-direct:segments={segments}", top, size), top, engine="flows")
    (rank,) = np.flatnonzero((top.src == 0) & (top.dst == 12))
    spine = np.flatnonzero(top.link_class == top.classes.index("spine"))[0]
    slowest = max(1 / float(top.rate[rank]), 1 / float(top.rate[spine]))
    whole = size * slowest + 2 * float(top.latency_s[rank] + top.latency_s[spine])
    assert abs(run.time_ps - whole * 1e12) <= 2 * segments


@pytest.mark.parametrize("segments", [8, 32, 128])
def test_the_event_engine_is_longer_by_the_turns_of_one_segment(segments: int) -> None:
    top = ringwright.fabric(TREE)
    program = asked(f"collnet-direct:segments={segments}", top, 1 << 28)
    flowing, stored = (simulate(program, top, engine=engine).time_ps for engine in ("flows", "events"))
    assert 0 < stored / flowing - 1 < 4 / segments


BANDS = {  # of 256 MiB, where phases inside nodes are beside the stream: flows do not overlap with what they wait for
    ("dgx-h100:5,per_leaf=2,sharp=true", "collnet-direct"): (1.0, 1.25),
    ("dgx-h100:5,per_leaf=2,sharp=true", "collnet-chain"): (1.0, 1.25),
    ("dgx-h100:5,per_leaf=2,sharp=true", "nvls-collnet"): (0.85, 1.0),
    ("dgx-a100:4,per_leaf=2,sharp=true", "collnet-direct"): (1.0, 1.45),
    ("dgx-h100:1", "nvls"): (0.85, 1.0),
}


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize(("fabric", "name"), BANDS)
def test_the_error_against_the_event_engine_is_stated(fabric: str, name: str) -> None:
    top = ringwright.fabric(fabric)
    for size in (8, 1 << 28):
        program = asked(name, top, size)
        ratio = simulate(program, top, engine="flows").time_ps / simulate(program, top).time_ps
        low, high = (0.999, 1.001) if size == 8 else BANDS[fabric, name]
        assert low <= ratio <= high


def test_there_is_one_flow_at_a_time_whatever_the_number_of_members() -> None:
    count = []
    for hosts in (2, 6, 12):
        top = ringwright.fabric(f"leaf-spine:{hosts},per_leaf={hosts},sharp=true")
        laid, made = laid_out(asked("collnet-direct:segments=16", top, 1 << 24), top)
        carried = with_carriers(laid, made)
        assert carried.carriers == 16
        run = flows.run(laid, made)
        starts = np.unique(run.start_ps)
        assert len(starts) == 16
        count.append(run.time_ps)
    assert max(count) - min(count) <= 32


def test_all_run_at_the_rate_of_the_slowest_member() -> None:
    top = ringwright.fabric("leaf-spine:8,per_leaf=4,sharp=true")
    slow = dataclasses.replace(top, faults=(Fault(0.0, "link", 5, "rate_factor", 0.25),))
    size = 1 << 26
    healthy, broken = (simulate(asked("collnet-direct", top, size), each, engine="flows") for each in (top, slow))
    assert broken.time_ps / healthy.time_ps == pytest.approx(4.0, rel=1e-3)
    assert "take in a segment before they pass it on" in " ".join(broken.left_out)


@pytest.mark.parametrize("name", ["collnet-direct:segments=3", "collnet-chain:segments=2", "nvls-collnet:segments=2"])
def test_folded_flows_and_the_python_twin_are_the_same_to_the_picosecond(name: str) -> None:
    top = ringwright.fabric("dgx-h100:4,per_leaf=2,sharp=true")
    program = asked(name, top, 3 << 20)
    laid, made = laid_out(program, top)
    whole = flows.run(laid, made)
    folded = fold(program, made, fluid=True)
    found = flows.run(folded.flat, folded.machine)
    twin = flows.run(folded.flat, folded.machine, native=False)
    assert np.array_equal(np.sort(np.repeat(found.end_ps, folded.flat.weight)), np.sort(whole.end_ps))
    assert np.array_equal(twin.end_ps, found.end_ps)
    assert events.run(laid, made).time_ps > 0


@pytest.mark.parametrize(("nodes", "low", "high"), [(2, 0.69, 0.72), (4, 1.0, 1.11), (5, 1.0, 1.11)])
def test_trees_between_domains_are_streams_too(nodes: int, low: float, high: float) -> None:
    """What a stream waits for is partly its own there, message by message or by joins: the answer is the same without a compiler.

    On two nodes segments overlap on a NIC both ways, which events, that store each segment at a switch, do less.
    """
    top = ringwright.fabric(f"dgx-h100:{nodes}")
    program = asked("nvls-tree", top, 1 << 28)
    ratio = simulate(program, top, engine="flows").time_ps / simulate(program, top).time_ps
    assert low <= ratio <= high
    least = lowest(program.collective, top, exact=True).time_s
    assert simulate(program, top, engine="flows").time_ps >= least * 1e12 * (1 - 1e-9)


def test_latencies_that_change_decline() -> None:
    top = ringwright.fabric("dgx-h100:2")
    lagging = dataclasses.replace(top, faults=(Fault(1e-6, "link", 5, "latency_s", 1e-5),))
    with pytest.raises(DeclinedError, match="latencies change"):
        with_carriers(*laid_out(asked("nvls-tree", top, 1 << 22), lagging))
