"""Outages over a laid-out job: what is on their links stands still or goes at what is left, in both loops alike."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import job_cases as cases
import pieced_jobs
from ringwright.engines.job.flat import FlatJob, InstanceTimes
from ringwright.engines.job.loop import Loop
from ringwright.engines.job.outages import Outage, held_up
from ringwright.native import engine

compiled = pytest.mark.skipif(not hasattr(engine, "job"), reason="needs a compiled job loop")


def ends(flat: FlatJob, outages: list[Outage], resource_of: dict[int, int] | None = None) -> list[int]:
    laid = held_up(flat, outages, {7: 0} if resource_of is None else resource_of)
    times = Loop(laid).run().until(flat.n)
    if hasattr(engine, "job"):
        twin = InstanceTimes(*engine.job(laid)).until(flat.n)
        assert np.array_equal(times.end, twin.end)
    return times.end.tolist()


def two_operations(share: float = 1.0) -> FlatJob:
    """One after another on a queue, each 100 ps on resource 0."""
    return cases.job([100, 100], [0, 0], cases.communication(), loads=[(0, 0, share), (1, 0, share)])


def test_an_operation_stands_still_while_its_link_is_down() -> None:
    flat = two_operations()
    assert ends(flat, []) == [100, 200]
    assert ends(flat, [Outage((7,), 30, 80)]) == [150, 250]
    assert ends(flat, [Outage((7,), 30, 80), Outage((7,), 160, 161)]) == [150, 251]
    assert ends(flat, [Outage((7,), 250, 300)]) == [100, 200]  # when all is over


def test_however_little_of_the_link_an_operation_uses() -> None:
    assert ends(two_operations(1e-9), [Outage((7,), 30, 80)]) == [150, 250]


def test_what_is_left_of_a_rate_is_used() -> None:
    assert ends(two_operations(), [Outage((7,), 50, 150, 0.25)]) == [175, 275]
    assert ends(two_operations(0.25), [Outage((7,), 50, 150, 0.25)]) == [100, 200]  # what is left is enough
    assert ends(two_operations(0.5), [Outage((7,), 0, 10_000, 0.25)]) == [200, 400]


def test_a_link_that_nobody_uses_holds_nobody_up() -> None:
    assert ends(two_operations(), [Outage((3,), 30, 80)]) == [100, 200]


def test_compute_goes_on_and_others_links_too() -> None:
    flat = cases.job([100, 100, 100], [0, 1, 2], cases.communication(2, streams=1), loads=[(1, 0, 1.0), (2, 1, 1.0)])
    assert ends(flat, [Outage((7,), 10, 60)]) == [100, 150, 100]


def test_a_link_that_stays_down_ends_nothing() -> None:
    flat = two_operations()
    laid = held_up(flat, [Outage((7,), 30, 1 << 60)], {7: 0})
    times = Loop(laid).run().until(2)
    assert times.end[0] > 1 << 59


@pytest.mark.sampled(3, "*")
@compiled
@pytest.mark.parametrize("block", range(4))
def test_native_equals_python_under_outages(block: int) -> None:
    stood = 0
    for seed in range(60 * block, 60 * block + 60):
        flat = cases.random_job(seed) if seed % 2 else pieced_jobs.pieced_job(seed)
        r = np.random.default_rng(seed)
        top = int(flat.work_ps.max(initial=1)) + 1
        outages = []
        for link in range(flat.n_resources):
            now = 0
            for _ in range(int(r.integers(0, 5))):
                begin = now + int(r.integers(0, top))
                now = begin + int(r.integers(1, top + 1))
                outages.append(Outage((link,), begin, now, float(r.choice([0.0, 0.0, 0.1, 0.5]))))
        laid = held_up(flat, outages, {link: link for link in range(flat.n_resources)})
        one, other = Loop(laid).run(), InstanceTimes(*engine.job(laid))
        for column in ("ready", "start", "moved", "end"):
            assert np.array_equal(getattr(one, column), getattr(other, column)), f"seed {seed}, {column}"
        stood += int((one.end[: flat.n] != Loop(flat).run().end).any())
    assert stood > 20


@compiled
def test_a_claim_that_is_no_number_is_refused() -> None:
    flat = two_operations()
    for bad in (np.nan, 0.0, -1.0):
        with pytest.raises(ValueError, match="claim"):
            engine.job(dataclasses.replace(flat, claim=np.array([bad, 1.0])))
