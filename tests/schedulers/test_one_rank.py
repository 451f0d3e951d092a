"""On one rank, or on links that take no time, no policy makes a step shorter: a device does one thing at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import ringwright
from ringwright.engines.job.run import JobRun, simulate
from ringwright.jobs import auto
from ringwright.jobs.step_bound import least_step_s
from ringwright.jobs.study import DECLINES, Job
from ringwright.model.registry import find, schedulers
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.workloads.chain import ChainLayer, chain

ROUNDING = 1e-7  # tasks take whole picoseconds
KNOBS: dict[str, dict[str, int]] = {"syndicate": {"budget": 3}}  # no plan gains here, however many are timed
COSTS = LinkCosts(25e9, ring=True)
NO_TIME = LinkCosts(1e24, ring=True)
FORMS = {
    "alone": (1, 1),
    "alone in 3 micro-batches": (1, 3),
    "dp4": (4, 1),
    "zero1": (4, 2),
    "fsdp": (4, 2),
    "tp2,sp": (4, 1),
}


@cache
def step_of(form: str) -> Workload:
    """A model whose updates take a fifth of its step on one GPU: so many GPUs, so many micro-batches."""
    gpus, batches = FORMS[form]
    return ringwright.job("gpt3-125m", gpus=gpus, parallel=None if gpus == 1 else form, micro_batches=batches)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("slug", [each.slug for each in schedulers() if each.problem is None])
def test_no_policy_shortens_a_step_that_waits_for_nothing(slug: str, form: str) -> None:
    step = step_of(form)
    try:
        made = find(slug, schedulers).load()(step, NO_TIME, **KNOBS.get(slug, {}))
    except DECLINES:
        return  # who has nothing to do makes nothing shorter
    saves = any(
        each.change.flops < 0 or each.change.traffic_bytes < 0 or each.change.launches < 0 for each in made.applied
    )
    plain_s, mine_s = (simulate(each, NO_TIME).step_s for each in (step, made))
    assert saves or mine_s >= plain_s * (1 - ROUNDING), f"{slug} makes {plain_s} s of work in {mine_s} s"
    assert mine_s >= least_step_s(made, NO_TIME) * (1 - ROUNDING)


def test_a_search_over_policies_finds_nothing_on_one_rank() -> None:
    search = auto.searched(Job(step_of("alone"), COSTS), auto.TRIES)
    assert search.frontier == ("none",)


def updated(boundary: str, update_s: float = 0.003, layers: int = 4, mesh: int = 2) -> Workload:
    made = chain("toy", [ChainLayer(0.01, 0.02, 1 << 20, 1 << 18) for _ in range(layers)], ranks=mesh)
    tasks = tuple(replace(each, seconds=update_s) if each.kind == "U" else each for each in made.tasks)
    return replace(made, tasks=tasks).with_policy("mine", boundary=boundary)


def busy(run: JobRun) -> list[tuple[int, int, str]]:
    """Return begin, end and name of every task that takes time on the first rank class, in the order in which they begin."""
    rows = [row for row in run.laid.rows if row.what == "task" and row.rank_classes[0] == 0]
    listed = [
        (begin, end, row.name)
        for row in rows
        for step in range(run.laid.steps)
        for begin, end in zip(run.starts(row, step).tolist(), run.ends(row, step).tolist(), strict=True)
        if end > begin
    ]
    return sorted(listed)


@pytest.mark.parametrize("boundary", ["layer", "barrier", "reads"])
def test_a_device_does_one_thing_at_a_time(boundary: str) -> None:
    listed = busy(simulate(updated(boundary), COSTS, steps=4))
    assert sum(name.startswith("U.") for _, _, name in listed) == 16
    assert all(one[1] <= other[0] for one, other in pairwise(listed))


def test_passes_go_before_updates_and_these_as_their_sums_are_back_while_the_device_rests() -> None:
    slow = LinkCosts(
        (1 << 20) / 0.03
    )  # a sum takes longer than a layer's backward pass: the device rests behind the last one
    run = simulate(updated("layer"), slow, steps=4)
    names = [name for _, _, name in busy(run)][-12:]
    assert names == [
        *(f"F.layer{at}" for at in range(4)),
        *(f"B.layer{at}" for at in (3, 2, 1, 0)),  # the last layer's sum is back before, and its update waits
        *("U.layer2", "U.layer3", "U.layer1", "U.layer0"),
    ]
    assert run.step_s == pytest.approx(0.12 + 0.06 + 0.003)  # the passes, two sums behind them, and one update
    assert simulate(updated("barrier"), slow, steps=4).step_s == pytest.approx(0.12 + 0.06 + 4 * 0.003)
    assert simulate(updated("layer", update_s=0.0), slow, steps=4).step_s == pytest.approx(0.12 + 0.06)


def test_both_engines_let_updates_and_passes_take_turns() -> None:
    made = updated("layer")
    compiled, plain = (simulate(made, LinkCosts(3e7), steps=4, native=each) for each in (True, False))
    assert np.array_equal(compiled.times.end, plain.times.end)
