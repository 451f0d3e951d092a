"""Tuning finds what a grid finds, in few samples, whatever measures a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.jobs import model_job, study
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.tune import SPACES, spelled, tune, tuned
from ringwright.model.stages import Costs, LinkCosts, ServerCosts

pytestmark = pytest.mark.once

pytest.importorskip("bayes_opt")
SAMPLES, WITHIN, GRID = 15, 1.05, 5


def job(model: str, parallel: str, device: str, costs: Costs | None, **asked: Any) -> study.Job:
    ranks = math.prod(int(word[2:]) for word in parallel.split(","))
    card = WorkloadSpec(model, ranks, parallel, asked.pop("micro_batches", 1), **asked)
    made = model_job.made(model_job.GeneratedJobSpec(card, gpu=device), fabric("dgx-h100:2"))
    return replace(made, costs=costs) if costs else made


JOBS = {
    "vgg16 on servers": lambda: job("vgg16", "dp8", "v100", ServerCosts(2.5e9, overhead_s=5e-5, server_rate=4e9)),
    "resnet50, dear starts": lambda: job("resnet50", "dp8", "v100", LinkCosts(1.25e9, 3e-5, 1.5e-4, ring=True)),
    "llama in stages": lambda: job(
        "llama3-8b", "tp2,pp2,dp4", "h100", None, micro_batches=2, seq=2048, micro_batch_size=1, dims={"layers": 8}
    ),
}
CASES = [
    ("vgg16 on servers", "bytescheduler"),
    ("resnet50, dear starts", "pytorch-ddp"),
    ("llama in stages", "pytorch-ddp"),
]


def points(space: Mapping[str, tuple[float, float]]) -> list[dict[str, float]]:
    number = GRID if len(space) > 1 else 13
    axes = [[least * (most / least) ** (at / (number - 1)) for at in range(number)] for least, most in space.values()]
    return [dict(zip(space, values, strict=True)) for values in product(*axes)]


@pytest.mark.sampled(1, "name", "policy")
@pytest.mark.parametrize(("name", "policy"), CASES)
def test_few_samples_come_close_to_the_best_of_a_grid(name: str, policy: str) -> None:
    asked = JOBS[name]()
    steps = [study.answer(asked, spelled(policy, knobs)).account.step_s for knobs in points(SPACES[policy])]
    found = tuned(asked, policy, SAMPLES)
    assert len(found.trials) == SAMPLES
    assert max(steps) > 1.005 * min(steps)  # or there would be nothing to tune
    assert found.best.seconds <= WITHIN * min(steps)
    assert study.answer(asked, found.spelling).account.step_s == found.best.seconds


def bowl(knobs: dict[str, float]) -> float:
    """Least at a bucket of 8, as a live job might show it: overhead of small buckets, waiting of large ones."""
    return 0.1 + 0.02 * abs(math.log2(knobs["bucket"] / 8.0)) ** 1.5


def test_a_live_measurement_is_any_function_of_knobs() -> None:
    asked: list[dict[str, float]] = []

    def measure(knobs: dict[str, float]) -> float:
        asked.append(knobs)
        return bowl(knobs)

    found = tune(measure, {"bucket": (0.25, 1024.0)}, SAMPLES, seed=3)
    assert [trial.knobs for trial in found.trials] == asked
    assert found.best.seconds <= 0.105
    few = SAMPLES // 2
    assert tune(bowl, {"bucket": (0.25, 1024.0)}, few, seed=3).trials == found.trials[:few]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="no range"):
        tune(bowl, {"bucket": (8.0, 8.0)}, 3)
    with pytest.raises(UsageError, match="0 samples"):
        tune(bowl, {"bucket": (1.0, 8.0)}, 0)
    with pytest.raises(UsageError, match="took -1"):
        tune(lambda _: -1.0, {"bucket": (1.0, 8.0)}, 3)
    with pytest.raises(UsageError, match="no knobs"):
        tuned(JOBS["resnet50, dear starts"](), "p3", 3)
