"""PACE's figures: first come first served against the optimum, and what merging and ordering gain on real models."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from functools import cache, partial

from ringwright.engines.job.run import simulate
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.schedulers.priority._fusion import first_come, preemptive
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.schedulers.priority.pace import pace
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model
from ringwright_lab.papers.figures.netai2020 import BATCH_S

INSTANCES = 3000
MOST_TENSORS = 30
RATIOS = (0.3, 3.0)  # seconds of a transfer for each second of a layer's backward, drawn for an instance: assumed


@cache
def _ratios() -> tuple[float, ...]:
    """Return, for random chains of 2 to 30 layers, the end of forward when tensors go in ready order against the optimum."""
    draw = random.Random(0)  # noqa: S311
    ratios = []
    for _ in range(INSTANCES):
        layers, ratio = draw.randint(2, MOST_TENSORS), draw.uniform(*RATIOS)
        jobs, now, rest = [], 0.0, [0.0]
        for _ in range(layers):
            rest.append(rest[-1] + draw.uniform(1, 10))
        for layer in range(layers):  # backward: the last layer first, which leaves the least of forward to do
            now += draw.uniform(1, 10)
            jobs.append((now, draw.uniform(1, 10) * ratio, rest[layer + 1]))
        ratios.append(first_come(jobs) / preemptive(jobs))
    return tuple(ratios)


def fifo_mean() -> float:
    """Return the mean ratio."""
    return statistics.fmean(_ratios())


def fifo_largest() -> float:
    """Return the largest ratio."""
    return max(_ratios())


def fifo_wins() -> int:
    """Return how often first come first served is better than the optimum."""
    return sum(ratio < 1 - 1e-12 for ratio in _ratios())


# ------------------------------------------------------------------------------------------------------------ scenario B
ITERATION_S = {  # of one GPU with 32 images; measured on a V100 where netai2020 has it, else assumed
    "resnet50": BATCH_S["resnet50"],
    "vgg16": BATCH_S["vgg16"],
    "inception-v3": 0.15,
    "transformer": 0.15,
}
RANKS = 16
ALPHAS_MS, RATES_GBPS = (0.05, 0.3, 1.0), (10, 25, 40, 100)
MADE: dict[str, Callable[..., Workload]] = {
    "wfbp": partial(pytorch_ddp, bucket_cap_mb=0),
    "buckets": pytorch_ddp,
    "bytescheduler": bytescheduler,
    "pace": pace,
    "order": partial(pace, fusion="none"),
}


@cache
def _model(name: str) -> Workload:
    return layerwise(model(name), ITERATION_S[name], RANKS, each="tensor", branches=True)


@cache
def step(name: str, policy: str, alpha_ms: float, rate_gbps: float) -> float:
    """Return seconds of a step: all-reduce of ``alpha_ms`` and a ring's bytes over ``rate_gbps``."""
    costs = LinkCosts(rate_gbps * 1e9 / 8 * RANKS / (2 * (RANKS - 1)), overhead_s=alpha_ms * 1e-3)
    return simulate(MADE[policy](_model(name), costs), costs, steps=3).step_s


def gain(name: str, over: str, alpha_ms: float, rate_gbps: float) -> float:
    """Return how many times shorter PACE's step is than with ``over``: wfbp, buckets, bytescheduler or order."""
    return step(name, over, alpha_ms, rate_gbps) / step(name, "pace", alpha_ms, rate_gbps)


def fusion_over_order(name: str, alpha_ms: float, rate_gbps: float) -> float:
    """Return the gain of merging (against order alone) divided by the gain of order alone (against wait-free backprop)."""
    order = step(name, "order", alpha_ms, rate_gbps)
    merged = order / step(name, "pace", alpha_ms, rate_gbps)
    return merged / (step(name, "wfbp", alpha_ms, rate_gbps) / order)


def largest_over_ideal() -> float:
    """Return the largest gain over wait-free backprop whose all-reduces cost bytes only, over models, rates and start-ups."""
    return max(
        step(name, "wfbp", 0.0, rate) / step(name, "pace", alpha, rate)
        for name in ITERATION_S
        for rate in RATES_GBPS
        for alpha in ALPHAS_MS
    )


def largest_over_others(alpha_ms: float) -> float:
    """Return the largest gain over the best of the others, over models and rates, as a share: 0 is none."""
    others = ("wfbp", "buckets", "bytescheduler")
    return max(
        min(gain(name, other, alpha_ms, rate) for other in others) - 1 for name in ITERATION_S for rate in RATES_GBPS
    )
