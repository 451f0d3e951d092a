"""What both image models share: random images and classes, the loss."""

from __future__ import annotations

import torch
from torch import nn

from ringwright_lab.models.spec import ExperimentSpec

Batch = tuple[torch.Tensor, torch.Tensor]


def tokens(spec: ExperimentSpec, step: int, part: int, parts: int) -> Batch:
    """Return part ``part`` of the random images (batch, 3, image, image) and classes of a step."""
    side, batch = spec.dims["image"], spec.batch
    if spec.fake is not None:
        return torch.zeros(batch, 3, side, side), torch.zeros(batch, dtype=torch.long)
    source = torch.Generator().manual_seed(1000 * spec.seed + step)
    images = torch.randn((parts * batch, 3, side, side), generator=source)
    classes = torch.randint(0, spec.dims["classes"], (parts * batch,), generator=source)
    mine = slice(part * batch, (part + 1) * batch)
    return images[mine].contiguous(), classes[mine].contiguous()


def logits(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return the logits (batch, classes)."""
    output: torch.Tensor = model(inputs)
    return output


def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy."""
    return nn.functional.cross_entropy(logits.float(), targets)
