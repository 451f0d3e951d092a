"""The event engine: closed forms it must meet, and its compiled twin, which must agree to the picosecond."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine_cases as cases
from ringwright.algorithms.blocks.ring import ring
from ringwright.collective import Collective
from ringwright.engines import event_loop, events, flat, flows, loops
from ringwright.engines.hazards import hazards
from ringwright.engines.machine import ALPHAS, machine
from ringwright.errors import DeclinedError, InfeasibleError
from ringwright.program import Cost, Op, Program, Step, cut, explicit
from ringwright.topology import Fault

needs_native = pytest.mark.skipif(loops.engine is None, reason="no compiled engine")


@pytest.mark.parametrize("p", [2, 3, 8, 17])
def test_a_ring_over_a_switch_takes_what_the_formula_says(p: int) -> None:
    program = ring(Collective("all-reduce", range(p), p * 1000))
    for alpha, both in (("pipelined", 500_000), ("busy", 500_000)):
        made = machine(cases.switch(p), alpha)
        run = events.run(flat.flatten(program, made), made)
        assert run.time_ps == 2 * (p - 1) * (both + 1000 * 20)


@needs_native
@given(seed=st.integers(0, 1 << 32), alpha=st.sampled_from(ALPHAS))
def test_native_agrees_with_its_twin(seed: int, alpha: str) -> None:
    rng = np.random.default_rng(seed)
    p = int(rng.integers(2, 9))
    made = machine(cases.random_fabric(rng, p), alpha)
    laid = flat.flatten(cases.random_program(rng, p), made)
    for ours, theirs in zip(loops.events(laid, made), event_loop.simulate_events(laid, made), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@needs_native
@given(seed=st.integers(0, 1 << 32))
def test_native_order_means_the_same(seed: int) -> None:
    """Joins may differ; who waits for whom, through any number of joins, may not."""
    rng = np.random.default_rng(seed)
    pieces = flat.gather(cases.random_program(rng, int(rng.integers(2, 9))))
    step = pieces.step[pieces.message]
    n = len(pieces.src)
    twin = hazards(pieces.message, step, pieces.reads, pieces.writes, n).order(n)
    assert waits_for(loops.order(pieces), n) == waits_for(twin, n)


def waits_for(order: object, n: int) -> set[tuple[int, int]]:
    """Return all (earlier, later) pairs of messages, however many lie between."""
    starts, nexts, waits = order.next_starts, order.nexts, order.waits
    assert np.array_equal(np.bincount(nexts, minlength=len(waits)), waits)
    before: list[set[int]] = [set() for _ in waits]
    left, ready = waits.tolist(), [i for i, count in enumerate(waits) if not count]
    while ready:
        here = ready.pop()
        for there in nexts[starts[here] : starts[here + 1]].tolist():
            before[there] |= before[here] | ({here} if here < n else set())
            left[there] -= 1
            if not left[there]:
                ready.append(there)
    assert not any(left)
    return {(early, late) for late in range(n) for early in before[late]}


def test_a_dead_link_is_reported() -> None:
    top = dataclasses.replace(cases.switch(4), faults=(Fault(1e-6, "link", 1, "rate_factor", 0.0),))
    made = machine(top)
    laid = flat.flatten(ring(Collective("all-reduce", range(4), 1 << 20)), made)
    with pytest.raises(InfeasibleError, match="messages never arrive"):
        events.run(laid, made)


def test_a_link_that_comes_back_delays() -> None:
    faults = (Fault(0.0, "link", 1, "rate_factor", 0.0), Fault(1e-3, "link", 1, "rate_factor", 1.0))
    made = machine(dataclasses.replace(cases.switch(4), faults=faults))
    program = ring(Collective("all-reduce", range(4), 4000))
    run = events.run(flat.flatten(program, made), made)
    assert 10**9 < run.time_ps < 10**9 + 10**7


def multicast(targets: list[int], size_bytes: int = 1_000_000) -> Program:
    block = explicit(Op.SEND, 0, targets, 0)
    steps = [Step((dataclasses.replace(block, multicast=True),))]
    collective = Collective("broadcast", range(16), size_bytes)
    return Program("multicast", collective, cut(collective), lambda: steps, 1, Cost((), 0.0))


def test_a_multicast_passes_shared_links_once() -> None:
    """Without copies on the way 15 messages would leave rank 0 one after the other."""
    made = machine(cases.leaf_spine(4, 4, 2))
    laid = flat.flatten(multicast([*range(1, 16)]), made)
    run = events.run(laid, made)
    assert run.time_ps == 20_000_000 + 4 * 500_000
    carried = np.bincount(laid.hops, minlength=made.n)
    assert carried.max() == 1
    assert carried.sum() == 1 + 3 + 2 + 2 * 3 + 12  # up, down in the leaf, to two spines, to three leaves each, down
    with pytest.raises(DeclinedError, match="multicast"):
        flows.run(laid, made)


def test_a_stem_waits_for_what_its_branches_wait_for() -> None:
    """Rank 2's slot is read until late; rank 1, first on the stream, gets nothing earlier."""
    program = multicast([1, 2])
    early = Step((explicit(Op.SEND, 2, [3, 4, 5], 0),))
    both = [early, *program.steps()]
    made = machine(cases.switch(16))
    run = events.run(flat.flatten(dataclasses.replace(program, make_steps=lambda: both, n_steps=2), made), made)
    assert run.end_ps.tolist()[-2:] == [3 * 20_000_000 + 500_000 + 20_500_000] * 2


def test_nothing_to_do_takes_no_time() -> None:
    made = machine(cases.switch(1))
    run = events.run(flat.flatten(ring(Collective("all-reduce", range(1), 4000)), made), made)
    assert (run.time_ps, run.events) == (0, 0)
