"""GradientFlow's figures: the step against the threshold of lazy all-reduce, and AlexNet on 512 GPUs."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from ringwright.engines.job.run import simulate
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.fifo.gradientflow import gradientflow
from ringwright.workloads.layers import layerwise, measured
from ringwright.workloads.models import model
from ringwright_lab.papers.figures.fit import turns
from ringwright_lab.papers.figures.netai2020 import BATCH_S, log

# Scenario A: ResNet-50's measured backward pass on 16 ranks. A start-up here is that of one all-reduce, all its steps.
RANKS, RATE = 16, 56e9 / 8
ALPHAS_US = (20, 50, 100, 200, 500, 1000)
THETAS_MB = (0, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 1024)  # from each tensor alone to one all-reduce
RIPPLE = 0.01

# Scenario B: the step of one GPU follows from the abstract: 95 epochs in 1.5 minutes at a speed-up of 410.2.
GPUS, SPEEDUP = 512, 410.2
IMAGES, EPOCHS, MINUTES = 1_281_167, 95, 1.5
BATCH = 128  # images a GPU: assumed
STEP_S = BATCH / (IMAGES * EPOCHS / (MINUTES * 60) / SPEEDUP)
HOP_S = 5e-6  # latency of a step of the ring: assumed
ALEXNET = {
    "fp32 per tensor": {"theta_mb": 0, "element_bytes": 4},
    "fp16 per tensor": {"theta_mb": 0, "element_bytes": 2},
    "fp16 lazy": {"element_bytes": 2},
    "fp16 lazy sparse": {"element_bytes": 2, "share": 0.1},
}


@cache
def lazy(alpha_us: float, theta_mb: float) -> float:
    """Return seconds of a ResNet-50 step in single precision whose all-reduces take ``alpha_us`` and their bytes."""
    read = log("resnet50")
    made = measured("resnet50", read.gaps_s, read.sizes_bytes, BATCH_S["resnet50"] - read.backward_s, RANKS)
    costs = LinkCosts(RATE, alpha_us * 1e-6 / (2 * (RANKS - 1)), ring=True)
    return simulate(gradientflow(made, costs, theta_mb=theta_mb, element_bytes=4), costs, steps=3).step_s


def curve(alpha_us: float) -> list[float]:
    """Return the steps over all thresholds."""
    return [lazy(alpha_us, theta) for theta in THETAS_MB]


def not_u_shaped() -> int:
    """Return how many of the curves fall again after they have risen by more than 1 %."""
    return sum(turns(curve(alpha), RIPPLE) > 0 for alpha in ALPHAS_US)


def best_theta(alpha_us: float) -> float:
    """Return the threshold in MiB of the shortest step, the smallest of equals."""
    steps = curve(alpha_us)
    return next(theta for theta, step in zip(THETAS_MB, steps, strict=True) if step <= min(steps) * (1 + 1e-9))


def moves_left() -> int:
    """Return how often the best threshold gets smaller as the start-up gets longer."""
    best = [best_theta(alpha) for alpha in ALPHAS_US]
    return sum(after < before for before, after in pairwise(best))


def between_gain(alpha_us: float) -> float:
    """Return by how many % a threshold between the extremes shortens the step of the better of both, below 0 where none does.

    The extremes are each tensor alone and all in one.
    """
    steps = curve(alpha_us)
    return 100 * (1 - min(steps[1:-1]) / min(steps[0], steps[-1]))


# ------------------------------------------------------------------------------------------------------------ scenario B
def alexnet(ranks: int = GPUS) -> tuple[Workload, LinkCosts]:
    """Return AlexNet's step on one GPU, repeated on all, and one ring through nodes of 8 GPUs and 56 Gb/s."""
    return layerwise(model("alexnet"), STEP_S, ranks, each="tensor"), LinkCosts(RATE, HOP_S, ring=True)


@cache
def alexnet_step(variant: str) -> float:
    """Return seconds of a step with one of four ways to send the gradients."""
    made, costs = alexnet()
    return simulate(gradientflow(made, costs, **ALEXNET[variant]), costs).step_s  # type: ignore[arg-type]


def faster(variant: str, than: str) -> float:
    """Return how many times shorter the step is."""
    return alexnet_step(than) / alexnet_step(variant)


def efficiency(variant: str) -> float:
    """Return compute alone against the step."""
    return STEP_S / alexnet_step(variant)


# ------------------------------------------------------------------------------------------------------- other speed-ups
def common_speedup(ranks: int) -> float:
    """Return the images/s of ``ranks`` GPUs against one, AlexNet, each tensor by itself in single precision."""
    made, costs = alexnet(ranks)
    return ranks * STEP_S / simulate(gradientflow(made, costs, **ALEXNET["fp32 per tensor"]), costs).step_s  # type: ignore[arg-type]


def resnet_efficiency(ranks: int = GPUS) -> float:
    """Return compute against the step of ResNet-50 on ``ranks`` GPUs, all techniques, a V100's measured time a step."""
    made = layerwise(model("resnet50"), BATCH_S["resnet50"], ranks, each="tensor")
    costs = LinkCosts(RATE, HOP_S, ring=True)
    return BATCH_S["resnet50"] / simulate(gradientflow(made, costs, **ALEXNET["fp16 lazy sparse"]), costs).step_s  # type: ignore[arg-type]
