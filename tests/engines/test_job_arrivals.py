"""Ranks that begin each step late: what they delay, what hides them, and what may not change."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ringwright
from ringwright.engines.job.run import JobRun, simulate
from ringwright.ground.errors import UsageError
from ringwright.jobs.explained.account import account
from ringwright.model.registry import scheduler
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Policy, Workload
from ringwright.workloads.chain import ChainLayer, chain

MS = 1e-3
COSTS = LinkCosts(1e9)
POLICIES = ("none", "pytorch-ddp", "p3:slice_elements=4000000", "bytescheduler", "tictac")


def layers(update_ms: float = 0.0, ranks: int = 4) -> Workload:
    """Two layers of 1 ms forward, 2 ms backward and 4 MB, which take 4 ms on the wire."""
    return chain("two layers", [ChainLayer(MS, 2 * MS, 4_000_000, update_s=update_ms * MS)] * 2, ranks)


def step_ms(workload: Workload, late: dict[int, float] | None = None) -> float:
    return simulate(workload, COSTS, late=late).step_s / MS


@pytest.mark.parametrize("update_ms", [0.0, 0.5])
def test_behind_a_barrier_the_last_rank_delays_all_by_as_much_as_it_is_late(update_ms: float) -> None:
    before = step_ms(layers(update_ms))
    assert step_ms(layers(update_ms), {2: 3 * MS}) == pytest.approx(before + 3)
    assert step_ms(layers(update_ms), dict.fromkeys(range(4), 3 * MS)) == pytest.approx(before + 3)
    assert step_ms(layers(update_ms), {0: MS, 3: 3 * MS}) == pytest.approx(before + 3)


def test_what_a_rank_waits_for_anyway_hides_its_delay() -> None:
    """Without a barrier the first layer's forward pass waits 6 ms for its sum: 4 ms of the delay are no longer than that."""
    workload = replace(layers(), policy=Policy(boundary="layer"))
    before = step_ms(workload)
    assert step_ms(workload, {1: 4 * MS}) == pytest.approx(before)
    assert step_ms(workload, {1: 100 * MS}) > before + 90


def test_ranks_that_are_not_late_change_nothing() -> None:
    for policy in POLICIES:
        workload = layers(0.5) if policy == "none" else scheduler(policy)[1](layers(0.5), COSTS)
        before = simulate(workload, COSTS)
        assert simulate(workload, COSTS, late={}).step_s == before.step_s
        assert simulate(workload, COSTS, late={1: 0.0}).step_s == before.step_s
        least = simulate(workload, COSTS, late={1: 1e-12})
        assert least.step_s == pytest.approx(before.step_s, abs=1e-9), policy


@pytest.mark.once
def test_a_later_rank_makes_no_step_shorter() -> None:
    workload, machine = ringwright.job("gpt3-125m", gpus=4, parallel="tp2,pp2"), ringwright.fabric("switch:4")
    for policy in ("none", "pytorch-ddp"):
        steps = [
            ringwright.simulate(workload, machine, policy=policy, arrivals=f"late:{rank}={late}").step_s
            for rank in (0, 3)
            for late in ("0us", "200us", "2ms")
        ]
        assert steps[0] == steps[3] == ringwright.simulate(workload, machine, policy=policy).step_s
        for less, more in ((0, 1), (1, 2), (3, 4), (4, 5)):
            assert steps[more] >= steps[less] * 0.999
        assert steps[2] - steps[0] == pytest.approx(2e-3, rel=0.05), "the first stage begins a step"


def test_the_time_in_which_a_rank_is_held_is_idle() -> None:
    run, late = (simulate(layers(), COSTS, late=each) for each in (None, {2: 3 * MS}))
    spent, more = account(run), account(late)
    assert more.compute_s == pytest.approx(spent.compute_s)
    assert parts(late) == pytest.approx(late.step_s)
    assert more.idle_s + more.exposed_s > spent.idle_s + spent.exposed_s


def parts(run: JobRun) -> float:
    spent = account(run)
    return spent.compute_s + spent.update_s + spent.exposed_s + spent.idle_s


def test_compiled_and_readable_loops_agree_on_late_ranks() -> None:
    late = {1: 2 * MS, 3: 0.3 * MS}
    ends = [simulate(layers(0.5), COSTS, late=late, native=native).times.end.tolist() for native in (True, False)]
    assert ends[0] == ends[1]


def test_who_is_not_in_the_job_is_refused() -> None:
    for wrong in ({4: 1.0}, {-1: 1.0}, {0: -1.0}, {0: float("nan")}):
        with pytest.raises(UsageError):
            simulate(layers(), COSTS, late=wrong)


def test_a_job_of_several_streams_is_held_once() -> None:
    """The sample's three communicators go side by side, and what ends its step follows all of them."""
    trace, machine = ringwright.read(ringwright.sample()), ringwright.fabric("dgx-h100:2")
    before, late = (ringwright.simulate(trace, machine, arrivals=each).step_s for each in (None, "late:3=2ms"))
    assert before < late <= before + 2e-3 + 1e-9
