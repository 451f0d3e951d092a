"""The theory of scheduling gradients: what is optimal is found optimal, what is bounded stays in its bound."""

from __future__ import annotations

import math
import random
from functools import cache, partial

import pytest

from ringwright.engines.job.run import simulate
from ringwright.model.stages import seconds
from ringwright.schedulers.fifo.gradientflow import gradientflow
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.schedulers.priority._fusion import first_come, preemptive
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.schedulers.priority.p3 import p3
from ringwright.schedulers.priority.pace import pace
from scheduled_jobs import MIB, Layers, crossing_s, fifo, layers, link, units

NEAR = 1e-9


def best_of_all(jobs: list[tuple[int, int, int]]) -> int:
    """Return the least max(C + q) over every way to share out the link, unit of time by unit of time."""
    total = sum(size for _, size, _ in jobs)

    @cache
    def least(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        there = [at for at, (ready, _, _) in enumerate(jobs) if ready <= now and left[at]]
        if not there:
            return least(min(jobs[at][0] for at in range(len(jobs)) if left[at]), left)
        return min(
            max(
                now + 1 + jobs[at][2] if left[at] == 1 else 0,
                least(now + 1, tuple(n - (at == one) for one, n in enumerate(left))),
            )
            for at in there
        )

    assert total < 60, "too many units to try everything"
    return least(0, tuple(size for _, size, _ in jobs))


@pytest.mark.parametrize("block", range(4))
def test_priority_is_optimal_on_one_link(block: int) -> None:
    """The most urgent first equals the best of every schedule, and the engine with P3's policy in units attains it."""
    for seed in range(100 * block, 100 * block + 100):
        made = layers(random.Random(seed), most=5, largest=5)
        best = best_of_all(made.jobs())
        assert preemptive(made.jobs()) == best, made
        costs = link()
        run = simulate(p3(made.job(), costs, slice_elements=1), costs, steps=2)
        assert crossing_s(run) == pytest.approx(best, abs=NEAR), made


def test_forward_that_takes_no_part_does_not_change_the_optimum() -> None:
    """Release times that leave the link idle in between are kept."""
    jobs = [(1, 2, 9), (10, 1, 3), (20, 4, 1)]
    assert preemptive(jobs) == best_of_all(jobs) == 25


@pytest.mark.parametrize("block", range(3))
def test_slices_cost_no_more_than_one_slice(block: int) -> None:
    """Finish <= optimum of the instance with all overheads, plus one slice and its overhead."""
    _slicing(range(100 * block, 100 * block + 100))


@pytest.mark.sampled(0, "*")  # of 300 instances: above
@pytest.mark.slow
def test_slices_cost_no_more_than_one_slice_in_3000_instances() -> None:
    _slicing(range(1000, 4000))


def _slicing(seeds: range) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        made = layers(draw, most=12, largest=30)
        cut, overhead, rate = draw.randint(1, 12), draw.choice((0.0, 0.1, 0.5, 2.0)), draw.choice((0.5, 1.0, 3.0))
        costs = link(rate, overhead)
        got = crossing_s(simulate(p3(made.job(), costs, slice_elements=cut), costs, steps=2))
        inflated = [(r, s / rate + overhead * math.ceil(s / cut), q) for r, s, q in made.jobs()]
        assert got <= preemptive(inflated) + cut / rate + overhead + 1e-6, (seed, made)
        assert got >= preemptive([(r, s / rate, q) for r, s, q in made.jobs()]) - 1e-6, (seed, made)


def test_first_come_first_served_is_never_better() -> None:
    for seed in range(300):
        jobs = layers(random.Random(seed), most=30, largest=20).jobs()
        assert first_come(jobs) >= preemptive(jobs) - NEAR


# --------------------------------------------------------------------------------------------------- wait-free backprop
def wait_free_s(made: Layers) -> float:
    """Return the step in closed form: F, then backward, tensors as they come on a link of 1 byte a second, then a barrier."""
    done = 0
    for ready, size, _ in made.jobs():
        done = max(done, ready) + size
    return sum(made.forward) + max(done, sum(made.backward))


@pytest.mark.parametrize("seed", range(60))
def test_no_split_no_order_and_a_barrier_are_wait_free_backprop(seed: int) -> None:
    made = layers(random.Random(seed), most=20)
    run = simulate(fifo(made.job(), link()), link(), steps=3)
    assert run.step_s == pytest.approx(wait_free_s(made), abs=NEAR)
    assert run.steady


@pytest.mark.parametrize("seed", range(40))
def test_crossing_the_barrier_gains_no_more_than_the_ceiling(seed: int) -> None:
    """Against wait-free backprop on one link, the gain is at most 1 + F / (F + B)."""
    made = layers(random.Random(seed), most=12)
    costs = link()
    got = simulate(p3(made.job(), costs, slice_elements=1), costs, steps=6)
    forward, backward = sum(made.forward), sum(made.backward)
    assert wait_free_s(made) / got.step_s <= 1 + forward / (forward + backward) + 1e-6


# ------------------------------------------------------------------------------------------------ systems that are equal
@pytest.mark.parametrize("seed", range(40))
def test_p3_on_a_chain_is_pace_without_fusion(seed: int) -> None:
    draw = random.Random(seed)
    made, cut = layers(draw, most=12), draw.randint(1, 9)
    costs = link(1.0, draw.choice((0.0, 0.25)))
    one = simulate(p3(made.job(), costs, slice_elements=cut), costs, steps=4)
    other = simulate(pace(made.job(), costs, slice_mb=units(cut), fusion="none"), costs, steps=4)
    assert one.times.end.tolist() == other.times.end.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_bytescheduler_with_credit_for_one_slice_is_p3(seed: int) -> None:
    draw = random.Random(seed)
    made, cut = layers(draw, most=12), draw.randint(1, 9)
    costs = link()
    one = simulate(p3(made.job(), costs, slice_elements=cut), costs, steps=4)
    single = partial(bytescheduler, partition_mb=units(cut), credit_mb=units(1))
    assert one.times.end.tolist() == simulate(single(made.job(), costs), costs, steps=4).times.end.tolist()


@pytest.mark.parametrize("seed", range(30))
def test_gradientflow_between_its_extremes(seed: int) -> None:
    """Threshold 0 is an all-reduce a tensor, a threshold beyond all is one all-reduce after backward."""
    made, costs = layers(random.Random(seed), most=12), link(1.0, 0.5)
    each = gradientflow(made.job(), costs, theta_mb=0, element_bytes=1)
    plain = pytorch_ddp(made.job(), costs, bucket_cap_mb=0)
    assert simulate(each, costs).step_s == pytest.approx(simulate(plain, costs).step_s, abs=NEAR)
    one = simulate(gradientflow(made.job(), costs, theta_mb=MIB, element_bytes=1), costs)
    whole = seconds(costs, "all-reduce", sum(made.sizes), (0, 1))
    assert one.step_s == pytest.approx(sum(made.forward) + sum(made.backward) + whole, abs=NEAR)


def test_gradientflow_chooses_no_worse_than_the_thresholds_it_tries() -> None:
    for seed in range(10):
        draw = random.Random(seed)
        times = [tuple(draw.randint(1, 9) for _ in range(12)) for _ in range(2)]
        made = Layers(times[0], times[1], tuple(draw.randint(1, 9) << 16 for _ in range(12)))
        costs, job = link(2e5, draw.choice((0.1, 3.0))), made.job()
        chosen = simulate(gradientflow(job, costs, element_bytes=4), costs).step_s
        for theta_mb in (0.25, 0.5, 1, 2, 4, 8, 1024):
            assert chosen <= simulate(gradientflow(job, costs, theta_mb=theta_mb, element_bytes=4), costs).step_s + NEAR
