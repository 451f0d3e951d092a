"""ImageNet in four minutes: all-reduces of all gradients of a step on 1,024 GPUs, fused and hierarchical against rings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from ringwright.algorithms.published.imagenet_4_minutes import fuse, imagenet_4_minutes, predicted_s
from ringwright.engines.job.run import simulate
from ringwright.model.collective import Collective
from ringwright.model.stages import Stage
from ringwright.schedulers.fifo.gradientflow import gradientflow
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model

GPUS, GROUP = 1024, 8
PRICE = {
    "level0": (5e-6, 1 / 12e9),
    "level1": (7.5e-6, 1 / 12.5e9),
    "": (7.5e-6, 1 / 12.5e9),
}  # s a hop: assumed; s a byte
POOL = 4 << 20  # bytes of a pool of tensors: assumed
HALF = 2  # bytes of a gradient
STEP_S = 32 * 2048 * 6.6 * 60 / (90 * 1_281_167)  # ResNet-50, 32 images a GPU: 90 epochs in 6.6 minutes on 2,048 GPUs


@cache
def all_reduce_s(size_bytes: int, eta: float) -> float:
    """Return the seconds of one all-reduce: messages below ``eta`` bytes by hierarchy, others by one ring."""
    program = imagenet_4_minutes(Collective("all-reduce", range(GPUS), size_bytes), group=GROUP, eta=eta)
    return predicted_s(program, PRICE)


def step_s(name: str, pool_bytes: int, eta: float) -> float:
    """Return the seconds of all all-reduces of a step, one after the other, tensors pooled to ``pool_bytes``."""
    made = layerwise(model(name), 1.0, GPUS, each="tensor", width_bytes=HALF)
    sizes = [payload.size_bytes for payload in made.payloads]
    return sum(all_reduce_s(sum(sizes[at] for at in pool), eta) for pool in fuse(sizes, pool_bytes))


def gain(name: str, pool_bytes: int = POOL, eta: float = math.inf) -> float:
    """Return how much longer rings of each tensor alone take, as a share: 0 is none."""
    return step_s(name, 0, 0.0) / step_s(name, pool_bytes, eta) - 1


@dataclass(frozen=True)
class HierarchyCosts:
    """What one fused message takes."""

    eta: float

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        return (Stage(all_reduce_s(size_bytes, self.eta)),)


def efficiency(pool_mb: float = POOL / (1 << 20), eta: float = math.inf) -> float:
    """Return compute against a step of ResNet-50 whose pools are sent while backward goes on."""
    made = layerwise(model("resnet50"), STEP_S, GPUS, each="tensor")
    costs = HierarchyCosts(eta)
    return STEP_S / simulate(gradientflow(made, costs, theta_mb=pool_mb, element_bytes=HALF), costs).step_s
