"""The event engine: closed forms it must meet, and its compiled twin, which must agree to the picosecond."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine_cases as cases
from ringwright.algorithms.blocks.ring import ring
from ringwright.engines import event_loop, events, flat, flows, loops
from ringwright.engines.choose import simulate
from ringwright.engines.hazards import hazards
from ringwright.engines.machine import ALPHAS, machine
from ringwright.ground.errors import DeclinedError, InfeasibleError
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, cut, explicit
from ringwright.model.topology import Fault, Topology

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


def occupied(p: int, message_s: float) -> Topology:
    return cases.switch(p, message_s={"link": message_s}, occupying=("link",))


def fan(p: int) -> Program:
    """Rank 0 sends 1000 B to each other rank."""
    steps = [Step((explicit(Op.SEND, 0, [*range(1, p)], 0),))]
    collective = Collective("broadcast", range(p), 1000)
    return Program("fan", collective, cut(collective), lambda: steps, 1, Cost((), 0.0))


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_busy_sender_sends_one_message_after_the_other(alpha: str, native: bool) -> None:
    """Software of 1 us and links of 20 ns and 250 ns: the sender sets the pace; as delay all seven would overlap."""
    made = machine(occupied(8, 1e-6), alpha)
    run = events.run(flat.flatten(fan(8), made), made, native=native)
    assert run.time_ps == 7 * 1_000_000 + 500_000 + 20_000
    assert run.start_ps.tolist() == [number * 1_000_000 for number in range(7)]
    made = machine(dataclasses.replace(made.topology, occupying=()))
    run = events.run(flat.flatten(fan(8), made), made, native=native)
    assert run.time_ps == 1_000_000 + 7 * 20_000 + 500_000


def test_a_sender_that_waits_for_its_messages_is_a_delay() -> None:
    program = ring(Collective("all-reduce", range(8), 8000))
    times = [
        simulate(program, top, engine).time_ps
        for top in (occupied(8, 1e-6), dataclasses.replace(occupied(8, 1e-6), occupying=()))
        for engine in ("events", "recurrence", "closed-form", "flows")
    ]
    assert set(times) == {14 * (1_000_000 + 500_000 + 20_000)}


def test_flows_take_a_busy_sender_as_delay_and_say_so() -> None:
    busy, idle = (simulate(fan(8), top, "flows") for top in (occupied(8, 1e-6), cases.switch(8)))
    assert busy.time_ps == idle.time_ps + 1_000_000
    assert "that a rank sends one message after the other" in busy.left_out
    assert "that a rank sends one message after the other" not in idle.left_out
    assert "in software" in busy.path()


def test_the_path_names_the_sender() -> None:
    run = simulate(fan(8), occupied(8, 1e-6), fold_symmetry=False)
    assert "waiting for link sender of rank0" in run.path()
    assert "in software" in run.path()
    assert all("sender" not in name for name, _, _ in run.load())


def test_the_dearest_class_on_the_way_sends() -> None:
    """Within a node delay, between nodes work: only the latter wait for each other."""
    top = dataclasses.replace(cases.nodes_of(4, 2), message_s={"nvlink": 1e-6, "nic": 5e-6}, occupying=("nic",))
    made = machine(top)
    laid = flat.flatten(fan(8), made)
    senders = [made.label(hop) for hop in laid.hops.tolist() if made.sends[hop]]
    assert len(senders) == 4
    assert len(set(senders)) == 1
    assert laid.delay.tolist() == [1_000_000] * 3 + [0] * 4


def test_a_stream_is_sent_once() -> None:
    made = machine(dataclasses.replace(cases.leaf_spine(4, 4, 2), message_s={"leaf": 1e-6}, occupying=("leaf",)))
    laid = flat.flatten(multicast([*range(1, 16)]), made)
    assert made.sends[laid.hops].sum() == 1
    run = events.run(laid, made)
    assert run.time_ps == 1_000_000 + 20_000_000 + 4 * 500_000


def test_nothing_to_do_takes_no_time() -> None:
    made = machine(cases.switch(1))
    run = events.run(flat.flatten(ring(Collective("all-reduce", range(1), 4000)), made), made)
    assert (run.time_ps, run.events) == (0, 0)
