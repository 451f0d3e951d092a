"""The choice of an engine, the recurrence and the closed form: one program, one answer, whichever way it is found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine_cases as cases
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.engines import closed_form, events, flat, recurrence
from ringwright.engines.choose import ENGINES, simulate
from ringwright.engines.machine import ALPHAS, machine
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.topology import Fault


@given(seed=st.integers(0, 1 << 32), alpha=st.sampled_from(ALPHAS))
def test_the_recurrence_is_exact_or_declines(seed: int, alpha: str) -> None:
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 9))
    made = machine(cases.random_fabric(rng, p), alpha)
    program = cases.random_program(rng, p)
    try:
        found = recurrence.run(program, made)
    except DeclinedError:
        return
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            events.run(flat.flatten(program, made), made)
        return
    assert found.time_ps == events.run(flat.flatten(program, made), made).time_ps


@pytest.mark.parametrize("engine", [each for each in ENGINES if each != "packets"])  # which carry headers
@pytest.mark.parametrize("p", [1, 2, 7, 16])
def test_engines_agree_without_contention(engine: str, p: int) -> None:
    program = ring(Collective("all-reduce", range(p), p * 1000))
    found = simulate(program, cases.switch(p), engine)
    assert found.time_ps == 2 * (p - 1) * (500_000 + 1000 * 20)
    assert found.left_out


def test_closed_form_takes_the_rates_of_each_level() -> None:
    top = cases.nodes_of(4, 8)
    program = blueconnect(Collective("all-reduce", range(32), 32_000), factors=(4, 8))
    exact = simulate(program, top, "recurrence")
    assert simulate(program, top, "closed-form").time_ps == pytest.approx(exact.time_ps, rel=1e-9)


def test_closed_form_follows_a_sweep() -> None:
    sizes = np.array([8 << 10, 8 << 20, 8 << 30])
    program = ring(Collective("all-reduce", range(8), 8000))
    times = closed_form.times_s(program, cases.switch(8), sizes)
    assert times == pytest.approx([14 * (500e-9 + size / 8 / 50e9) for size in sizes])
    with pytest.raises(UsageError):
        closed_form.times_s(ring(Collective("all-reduce", range(8), 0)), cases.switch(8), sizes)


@pytest.mark.parametrize("engine", ["auto", "events", "flows", "recurrence"])
@given(seed=st.integers(0, 1 << 32))
def test_no_time_is_below_the_bandwidth_bound(engine: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 9))
    top = dataclasses.replace(cases.random_fabric(rng, p), faults=())
    try:
        found = simulate(cases.random_program(rng, p), top, engine)
    except DeclinedError:
        return
    assert found.time_ps * (1 + 1e-9) >= found.busy_ps.max(initial=0)


def test_loads_say_what_each_link_carried() -> None:
    program = ring(Collective("all-reduce", range(8), 8000))
    folded = simulate(program, cases.circle(8))
    whole = simulate(program, cases.circle(8), fold_symmetry=False)
    assert (folded.parts, whole.parts) == (8, 1)
    assert whole.unfolded_because
    np.testing.assert_array_equal(folded.bytes, whole.bytes)
    assert folded.bytes.tolist() == [14_000] * 8 + [0] * 8


def test_a_program_too_large_to_lay_out_goes_through_the_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    program = ring(Collective("all-reduce", range(8), 8000))
    top = dataclasses.replace(cases.circle(8), faults=(Fault(1e-6, "link", 1, "rate_factor", 0.5),))
    exact = simulate(program, top)
    monkeypatch.setattr("ringwright.engines.choose.MOST_LAID_OUT", 10)
    found = simulate(program, top)
    assert (exact.engine, found.engine) == ("events", "recurrence")
    assert found.time_ps == exact.time_ps
    assert "fault" in found.unfolded_because


def test_an_unknown_engine_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no engine"):
        simulate(ring(Collective("all-reduce", range(2), 8)), cases.switch(2), "flits")


@pytest.mark.parametrize("latency_s", [0.0, 9e-6])
def test_a_latency_that_changes_on_the_way_is_exact_in_the_recurrence(latency_s: float) -> None:
    """Only messages that begin after the change have the new latency, message by message as in the event engine."""
    calm = cases.circle(8)
    later = dataclasses.replace(calm, faults=(Fault(4e-6, "link", 3, "latency_s", latency_s),))
    program = ring(Collective("all-reduce", range(8), 1 << 20))
    exact, found = (simulate(program, later, engine) for engine in ("events", "recurrence"))
    assert found.time_s == exact.time_s
    assert found.time_s != simulate(program, calm, "recurrence").time_s
