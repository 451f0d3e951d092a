"""Models whose layers sleep instead of computing, so that schedules show on machines with fewer cores than ranks.

Sizes and times keep the proportions of the models they stand for; the numbers sent are real, and so are the updates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ringwright.ground.errors import UsageError


@dataclass(frozen=True)
class SimulatedLayer:
    """One layer: elements of its parameter, seconds forward and backward."""

    name: str
    elements: int
    forward_s: float
    backward_s: float


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, forward_s: float, backward_s: float) -> Any:
        _nap(forward_s)
        ctx.save_for_backward(x, weight)
        ctx.backward_s = backward_s
        return x * 0.9 + weight[: x.numel()].view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight = ctx.saved_tensors
        _nap(ctx.backward_s)
        gradient = weight * 1e-3
        gradient[: x.numel()] += gradients[0].reshape(-1)
        return gradients[0] * 0.9, gradient, None, None


def _nap(seconds: float) -> None:
    until_s = time.perf_counter() + seconds
    while (left_s := until_s - time.perf_counter()) > 0:
        time.sleep(left_s)


class SleepLayer(torch.nn.Module):
    """A layer that sleeps."""

    def __init__(self, about: SimulatedLayer) -> None:
        super().__init__()
        self.about = about
        self.weight = torch.nn.Parameter(torch.randn(about.elements) * 0.01)

    def forward(self, x: Any) -> Any:
        """Return what depends on all of the input and a little of the weight."""
        return _Sleep.apply(x, self.weight, self.about.forward_s, self.about.backward_s)


def model(layers: Sequence[SimulatedLayer]) -> torch.nn.Module:
    """Return the layers one after another."""
    return torch.nn.Sequential(*(SleepLayer(each) for each in layers))


# VGG-16: millions of parameters and of multiply-adds at 224 x 224, layer by layer (Simonyan and Zisserman, table 1).
VGG16 = (
    (0.002, 87),
    (0.037, 1850),
    (0.074, 925),
    (0.148, 1850),
    (0.295, 925),
    (0.590, 1850),
    (0.590, 1850),
    (1.180, 925),
    (2.360, 1850),
    (2.360, 1850),
    (2.360, 462),
    (2.360, 462),
    (2.360, 462),
    (102.765, 103),
    (16.781, 17),
    (4.097, 4),
)


def toy(unit_s: float, unit_elements: int) -> list[SimulatedLayer]:
    """Return three layers of two units forward and backward, tensors of three, six and three units (SOSP 2019, figure 2)."""
    return [
        SimulatedLayer(f"layer{at}", size * unit_elements, 2 * unit_s, 2 * unit_s) for at, size in enumerate((3, 6, 3))
    ]


def vgg(step_s: float, elements: int) -> list[SimulatedLayer]:
    """Return VGG-16's proportions: much to compute in front, most parameters at the end; backward takes twice as long."""
    work, size = sum(row[1] for row in VGG16), sum(row[0] for row in VGG16)
    return [
        SimulatedLayer(
            f"layer{at}", max(int(part / size * elements), 64), step_s / 3 * flops / work, step_s / 1.5 * flops / work
        )
        for at, (part, flops) in enumerate(VGG16)
    ]


def transformer(step_s: float, elements: int, blocks: int = 24) -> list[SimulatedLayer]:
    """Return equal blocks between an embedding and a head of 4 % of the parameters each, as of patches and few classes."""
    each = SimulatedLayer("", int(elements * 0.92 / blocks), step_s * 0.96 / 3 / blocks, step_s * 0.96 / 1.5 / blocks)
    end = SimulatedLayer("", int(elements * 0.04), step_s * 0.02 / 3, step_s * 0.02 / 1.5)
    body = [replace(each, name=f"block{at}") for at in range(blocks)]
    return [replace(end, name="embedding"), *body, replace(end, name="head")]


def layers(kind: str, step_s: float, elements: int) -> list[SimulatedLayer]:
    """Return the layers of ``toy``, ``vgg`` or ``transformer``: ``step_s`` of compute, ``elements`` parameters in all."""
    if kind == "toy":
        return toy(step_s / 12, elements // 12)
    if kind not in ("vgg", "transformer"):
        raise UsageError(f"no simulated model '{kind}'", remedy="toy, vgg or transformer")
    return vgg(step_s, elements) if kind == "vgg" else transformer(step_s, elements)
