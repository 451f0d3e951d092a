"""Jobs against all their messages at once, and the laws of what is worse; ``python tests/whole_jobs.py 1000`` tries many more."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ringwright
import whole_jobs
import whole_step
from ringwright.engines.job.run import simulate
from ringwright.jobs.model_job import GeneratedJobSpec, made
from ringwright.jobs.pricing import concurrent_operations
from ringwright.jobs.pricing.concurrent_operations import MOST_TOGETHER
from ringwright.jobs.pricing.cost_cache import TimedRanks
from ringwright.jobs.pricing.costs import FabricCosts, on_fabric

# Pipeline stages and tensor-parallel groups on the NIC of a host; experts on four hosts; one NIC for each GPU; an uneven pipeline.
pytestmark = pytest.mark.once  # what is compiled in it is held to its Python twin elsewhere
DRAWN = (2, 30)


@pytest.fixture(autouse=True)
def _engines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what the collective verb says of an operation alone: messages are held against what an engine says of it."""
    monkeypatch.setattr(FabricCosts, "_said_of", lambda *_: None)


@pytest.mark.sampled(2, "seed")
@pytest.mark.parametrize("seed", [*DRAWN, 3, 21])
def test_a_step_takes_what_its_messages_take_together(seed: int) -> None:
    job = whole_jobs.drawn(seed, 32)
    asked = made(GeneratedJobSpec(job.card, "h100"), ringwright.fabric(job.fabric))
    assert isinstance(asked.costs, FabricCosts)
    model, messages = whole_step.both(whole_jobs.scheduled(job, asked.workload, asked.costs), asked.costs)
    assert model == pytest.approx(messages, rel=0.05)


def test_messages_know_how_much_a_switch_holds() -> None:
    """A switch that adds holds few packets, and 20 us more a link make a large all-reduce five times slower."""
    job = whole_jobs.drawn(392, 512)
    topology = ringwright.fabric(job.fabric)
    later = replace(topology, latency_s=topology.latency_s + 20e-6)
    asked = whole_jobs.asked_on(job, later)
    assert isinstance(asked.costs, FabricCosts)
    dense = tuple(each for each in asked.workload.payloads if each.role == "dp")
    model, messages = whole_step.both(replace(asked.workload, payloads=dense), asked.costs)
    assert model == pytest.approx(messages, rel=1e-6)


@pytest.mark.sampled(1, "seed")
@pytest.mark.parametrize("seed", DRAWN)
def test_nothing_that_is_worse_makes_a_job_faster(seed: int) -> None:
    told = whole_jobs.tried(whole_jobs.drawn(seed, 32))
    assert len(told.gains) == 5
    assert max(told.gains.values()) <= whole_jobs.MOST_GAIN
    assert min(told.gains.values()) < 0, "nothing of it reaches the job"
    assert told.missed <= whole_jobs.ROUNDING
    assert told.apart <= 1e-6
    assert "two groups on one NIC" in told.kinds


def test_a_slower_machine_is_faster_only_where_the_library_chooses_anew() -> None:
    """NCCL takes LL alone, by 0.06 us; with links of 0.8 of the rate LL128, with half the bytes, which leaves more to gradients beside."""
    job = whole_jobs.drawn(864, 512)
    topology = ringwright.fabric(job.fabric)
    asked = whole_jobs.asked_on(job, topology)
    slower = replace(topology, rate=topology.rate * 0.8)
    anew, kept = whole_jobs.asked_on(job, slower).costs, whole_jobs.made_worse(job, asked, slower).costs
    group = TimedRanks(tuple(range(8)))
    chosen = [each.program("all-gather", 1 << 20, group).protocol for each in (asked.costs, kept, anew)]
    assert chosen == ["ll", "ll", "ll128"]
    planned = whole_jobs.scheduled(job, asked.workload, asked.costs)
    took = [simulate(planned, each, steps=1).step_s for each in (asked.costs, kept, anew)]
    assert took[2] < took[0] < took[1]


def test_more_bytes_are_a_thousandth_more_whether_or_not_elements_are_told() -> None:
    workload = ringwright.job("gpt3-125m", gpus=4, parallel="tp2,dp2")
    longer = whole_jobs.longer(workload)
    assert {each.elements > 0 for each in workload.payloads} == {True, False}
    for old, new in zip(workload.payloads, longer.payloads, strict=True):
        assert old.size_bytes < new.size_bytes <= old.size_bytes * 1.001 + 8
        assert bool(old.elements) == bool(new.elements)


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
    monkeypatch.setattr(concurrent_operations, "MOST_TOGETHER", 0)
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
