"""The flow engine: fair rates, conservation, and its compiled twin, which must agree to the picosecond."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine_cases as cases
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines import events, flat, flow_loop, flows, loops
from ringwright.engines.fairness import UNIT, fair_rates
from ringwright.engines.machine import machine
from ringwright.ground.errors import InfeasibleError
from ringwright.model.collective import Collective
from ringwright.model.topology import Fault

needs_native = pytest.mark.skipif(loops.engine is None, reason="no compiled engine")


@st.composite
def flow_sets(draw: st.DrawFn) -> tuple[dict[int, list[int]], dict[int, int]]:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    resources = int(rng.integers(1, 12))
    capacity = dict(enumerate((rng.choice([1.0, 2.0, 3.5, 10.0], resources) * UNIT).astype(int).tolist()))
    count = int(rng.integers(1, 30))
    ways = {
        i: rng.choice(resources, int(rng.integers(1, min(resources, 4) + 1)), replace=False).tolist()
        for i in range(count)
    }
    return ways, capacity


@given(flow_sets())
def test_rates_are_max_min_fair(case: tuple[dict[int, list[int]], dict[int, int]]) -> None:
    """No resource carries more than it can, and every flow has a full resource on which nobody has more."""
    ways, capacity = case
    rates = fair_rates(ways, dict.fromkeys(ways, 1), capacity)
    load = [sum(rates[i] for i in ways if r in ways[i]) for r in capacity]
    assert all(load[r] <= most for r, most in capacity.items())
    for number, way in ways.items():
        full = [r for r in way if load[r] >= capacity[r] * (1 - 1e-6)]
        assert any(all(rates[i] <= rates[number] * (1 + 1e-6) for i in ways if r in ways[i]) for r in full)


@needs_native
@given(flow_sets())
def test_native_rates_are_those_of_the_twin(case: tuple[dict[int, list[int]], dict[int, int]]) -> None:
    ways, capacity = case
    starts = np.cumsum([0] + [len(way) for way in ways.values()])
    found = loops.engine.fair_rates(
        starts, np.concatenate([*ways.values()]).astype(np.int32), np.array([*capacity.values()])
    )
    assert found.tolist() == list(dict(sorted(fair_rates(ways, dict.fromkeys(ways, 1), capacity).items())).values())


@needs_native
@given(seed=st.integers(0, 1 << 32))
def test_native_agrees_with_its_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 9))
    made = machine(cases.random_fabric(rng, p))
    laid = flat.flatten(cases.random_program(rng, p, multicast=False), made)
    for ours, theirs in zip(loops.flows(laid, made), flow_loop.simulate_flows(laid, made), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("p", [2, 5, 16])
def test_without_contention_flows_take_as_long_as_messages(p: int) -> None:
    made = machine(cases.circle(p))
    laid = flat.flatten(ring(Collective("all-reduce", range(p), p * 1000)), made)
    assert flows.run(laid, made).time_ps == events.run(laid, made).time_ps


def test_an_oversubscribed_all_to_all_meets_its_bound() -> None:
    """4 leaves of 8 ranks with 2 uplinks each: what leaves a leaf has to pass two links."""
    program = cases.direct_all_to_all(32, 32 * 10_000)
    made = machine(cases.leaf_spine(8, 4, 2))
    run = flows.run(flat.flatten(program, made), made)
    least = 8 * 24 * 10_000 / (2 * 50e9) + 4 * 500e-9
    assert least * (1 - 1e-9) <= run.time_s <= least * 1.001


def test_a_fault_changes_capacity_at_its_instant() -> None:
    top = dataclasses.replace(cases.circle(2), faults=(Fault(10e-6, "link", 0, "rate_factor", 0.5),))
    program = cases.direct_all_to_all(2, 2_000_000)
    made = machine(top)
    run = flows.run(flat.flatten(program, made), made)
    assert run.time_s == pytest.approx(10e-6 + 2 * (1_000_000 / 50e9 - 10e-6) + 500e-9, abs=2e-12)


def test_a_dead_link_is_reported() -> None:
    made = machine(dataclasses.replace(cases.circle(4), faults=(Fault(0.0, "link", 2, "rate_factor", 0.0),)))
    laid = flat.flatten(ring(Collective("all-reduce", range(4), 4000)), made)
    with pytest.raises(InfeasibleError, match="never arrive"):
        flows.run(laid, made)
