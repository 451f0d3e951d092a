"""An order of the gradients, the same on every rank, and no other change."""

import dataclasses

from ringwright_template.smallest_first import smallest_first

import ringwright
from ringwright_lab.testing import check_scheduler, failures


def test_it_keeps_the_contract_of_schedulers() -> None:
    outcomes = check_scheduler(smallest_first, seeds=[1])
    assert failures(outcomes) == []
    assert sum(len(outcome.passed) for outcome in outcomes) > 10


def test_small_ones_have_small_keys() -> None:
    job = ringwright.job("vgg16", 4)
    made = smallest_first(job, None, at_once=2)
    keys = made.policy.queue.keys
    sizes = {each.name: each.size_bytes for each in job.gradients()}
    assert [sizes[name] for name in sorted(keys, key=keys.get)] == sorted(sizes.values())
    assert dataclasses.replace(made, policy=job.policy) == job


def test_a_job_can_be_simulated_with_it() -> None:
    answer = ringwright.simulate(ringwright.job("vgg16", 4), "switch:4", policy="smallest-first")
    assert answer.step_s > 0
