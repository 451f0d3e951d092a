"""The least that a step can take: never more than the engine says, exact where nothing can be hidden, and what it spares a search."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ringwright.ground.errors import RingwrightError
from ringwright.jobs import auto
from ringwright.jobs.step_bound import least_step_s
from ringwright.jobs.study import Job, answer
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.workloads.chain import ChainLayer, chain

MIB, MS = 1 << 20, 1e-3
POLICIES = (
    "none",
    "pytorch-ddp",
    "p3",
    "bytescheduler",
    "tictac",
    "pace",
    "dear",
    "ooo-backprop",
    "gradientflow+p3",
    "centauri",
)


def drawn(seed: int) -> Job:
    """Return a chain and a link: work or wires may be what takes longest."""
    draw = random.Random(seed)
    layers = [
        ChainLayer(draw.choice((1, 5, 20)) * MS, draw.choice((1, 5, 40)) * MS, draw.choice((1, 8, 32)) * MIB, 1 << 18)
        for _ in range(draw.randint(1, 7))
    ]
    link = LinkCosts(draw.choice((1e8, 1e9, 4e9)), draw.choice((0.0, 1e-5)), draw.choice((0.0, 1e-4)), ring=True)
    return Job(chain("drawn", layers, draw.choice((2, 4, 8))), link)


@pytest.mark.parametrize("seed", range(6))
def test_no_simulated_step_is_shorter(seed: int) -> None:
    job = drawn(seed)
    for policy in POLICIES:
        try:
            result = answer(job, policy)
        except RingwrightError:
            continue
        assert 0 < least_step_s(result.workload, job.costs) <= result.step_s * (1 + 1e-9), policy


@pytest.mark.parametrize("times", [0.25, 3.0])
def test_what_was_disturbed_otherwise_than_its_like_counts_as_long_as_it_took(times: float) -> None:
    job = drawn(3)
    payloads = tuple(replace(each, disturbed=times) for each in job.workload.payloads)
    told = replace(job, workload=replace(job.workload, payloads=payloads))
    least_s = least_step_s(answer(told, "none").workload, told.costs)
    assert least_s <= answer(told, "none").step_s * (1 + 1e-9)
    assert (least_s > least_step_s(job.workload, job.costs)) is (times > 1)


def test_what_no_order_can_hide() -> None:
    """Three layers of 10 ms forward, 20 ms backward, a sum each: by a barrier, and by layers."""
    step = chain("three", [ChainLayer(10 * MS, 20 * MS, each * MIB, 0) for each in (2, 4, 8)])
    link = LinkCosts(100 * MIB)  # 20, 40 and 80 ms, the last layer's first
    assert least_step_s(step, link) == pytest.approx((30 + 20 + 80 + 40 + 20) * MS)
    layered = step.with_policy("layers", boundary="layer")
    # From forward of the first layer to its backward pass, and its sum; all sums from the last layer's forward on: 30 + 140.
    assert least_step_s(layered, link) == pytest.approx(170 * MS)
    assert least_step_s(layered, LinkCosts(1e4 * MIB)) == pytest.approx(90 * MS + 0.2 * MS)
    assert least_step_s(step, LinkCosts(1e30)) == pytest.approx(90 * MS)
    alone = Workload("alone", step.mesh, step.classes, tuple(t for t in step.tasks if t.kind != "U"))
    assert least_step_s(alone, link) == pytest.approx(90 * MS)
    assert least_step_s(Workload("nothing", step.mesh, step.classes, ()), link) == 0.0


@pytest.mark.parametrize("seed", range(2))
def test_a_search_that_prunes_finds_what_one_finds_that_does_not(seed: int) -> None:
    job = drawn(seed + 20)
    short, whole = (auto.searched(job, 34, prunes=prunes) for prunes in (True, False))
    assert short.frontier == whole.frontier
    assert [each.policy for each in short.tried] == [each.policy for each in whole.tried]
    assert whole.pruned == 0
    full = {each.policy: each for each in whole.tried}
    for each in short.tried:
        if each.least_s is None:
            assert replace(each, same_as="") == full[each.policy]
        else:
            assert each.step_s is None
            assert each.least_s <= (full[each.policy].step_s or 0.0)


def test_a_search_says_what_it_did_not_simulate() -> None:
    """Where sums take ten times as long as the work, half precision is the answer, and no order of whole sums comes near."""
    layers = [ChainLayer(MS, 2 * MS, 8 * MIB, 2 * MIB) for _ in range(6)]
    search = auto.searched(Job(chain("wires", layers, 4), LinkCosts(8 * MIB / 0.03)), 60)
    document = search.document()
    assert document["pruned"] == search.pruned > 5
    assert document["alike"] == search.alike > 5
    times = {each["policy"]: each["step_us"] for each in document["tried"]}
    assert all(each["step_us"] == times[each["same_as"]] for each in document["tried"] if each["same_as"])
    pruned = [each for each in document["tried"] if each["least_us"] is not None]
    assert len(pruned) == search.pruned
    assert all(each["step_us"] is None and each["declined"] is None for each in pruned)
