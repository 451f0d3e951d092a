"""Jobs against all their messages at once, and the laws of what is worse; ``python tests/whole_jobs.py 1000`` tries many more."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ringwright
import whole_jobs
import whole_step
from ringwright.engines.job.run import simulate
from ringwright.studies.jobs import costs as job_costs
from ringwright.studies.jobs.costs import MOST_TOGETHER, FabricCosts, on_fabric
from ringwright.studies.jobs.generated import GeneratedJobSpec, made

# Pipeline stages and tensor-parallel groups on the NIC of a host; experts on four hosts; one NIC for each GPU; an uneven pipeline.
pytestmark = pytest.mark.once  # what is compiled in it is held to its Python twin elsewhere
DRAWN = (2, 30)


@pytest.mark.parametrize("seed", [*DRAWN, 3, 21])
def test_a_step_takes_what_its_messages_take_together(seed: int) -> None:
    job = whole_jobs.drawn(seed, 32)
    asked = made(GeneratedJobSpec(job.card, "h100"), ringwright.fabric(job.fabric))
    assert isinstance(asked.costs, FabricCosts)
    model, messages = whole_step.both(whole_jobs.scheduled(job, asked.workload, asked.costs), asked.costs)
    assert model == pytest.approx(messages, rel=0.05)


@pytest.mark.parametrize("seed", DRAWN)
def test_nothing_that_is_worse_makes_a_job_faster(seed: int) -> None:
    told = whole_jobs.tried(whole_jobs.drawn(seed, 32))
    assert len(told.gains) == 5
    assert max(told.gains.values()) <= whole_jobs.MOST_GAIN
    assert min(told.gains.values()) < 0, "nothing of it reaches the job"
    assert told.missed <= whole_jobs.ROUNDING
    assert told.apart <= 1e-6
    assert "two groups on one NIC" in told.kinds


def test_what_is_drawn_holds_the_kinds_that_it_is_to_hold() -> None:
    """Those that need no run to be counted; ``python tests/whole_jobs.py`` counts all."""
    jobs = [whole_jobs.drawn(seed, 512) for seed in range(300)]
    experts = sum("mixtral" in job.card.model for job in jobs)
    assert experts >= whole_jobs.SHARES["experts"] * len(jobs)
    assert {job.card.gpus for job in jobs} == {8, 16, 32, 64, 128, 256, 512}


def test_more_latency_makes_no_job_of_experts_faster() -> None:
    """Eight groups of two share each host's NIC: a factor probed at one size made this job 10 % faster."""
    from dataclasses import replace

    workload, machine = ringwright.job("mixtral-8x7b", gpus=16, parallel="ep8"), ringwright.fabric("ndv2:2")
    later = replace(machine, latency_s=machine.latency_s + 20e-6)
    before, after = (ringwright.simulate(workload, each).step_s for each in (machine, later))
    assert before * 0.999 <= after <= before * 1.01
    faulty = ringwright.simulate(workload, "ndv2:2", faults=["latency +20us"]).step_s
    assert before * 0.999 <= faulty <= before * 1.01


@pytest.mark.parametrize("size", [1 << 18, 1 << 22, 1 << 26, 1 << 30])
def test_large_sets_of_siblings_are_timed_on_their_share_of_the_links(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, machine = ringwright.job("llama3-8b", gpus=16, parallel="tp8"), ringwright.fabric("ndv2:2")
    ranks = (0, 8)
    together = on_fabric(machine, workload).stages("all-reduce", size, ranks, "dp")[0].wire_s
    monkeypatch.setattr(job_costs, "MOST_TOGETHER", 0)
    shared = on_fabric(machine, workload).stages("all-reduce", size, ranks, "dp")[0].wire_s
    assert MOST_TOGETHER > 0
    assert shared == pytest.approx(together, rel=0.02)


# Experts and pairs on a host whose GPUs are not wired alike; gradients whose rings pass each other's ranks on a torus.
@pytest.mark.parametrize(("seed", "fabric"), [(70, "ndv2:2"), (11, "ndv2:1"), (58, "torus:4x8")])
def test_ranks_that_lie_differently_are_not_taken_for_one(seed: int, fabric: str) -> None:
    job = replace(whole_jobs.drawn(seed, 32), fabric=fabric)
    asked = whole_jobs.asked_on(job, ringwright.fabric(fabric))
    planned = whole_jobs.scheduled(job, asked.workload, asked.costs)
    folded, whole = (simulate(planned, asked.costs, steps=2, folded=each) for each in (True, False))
    assert len(folded.laid.rank_classes) <= len(whole.laid.rank_classes)
    assert folded.step_s == pytest.approx(whole.step_s, rel=1e-3)
