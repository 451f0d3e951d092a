"""VGG after Simonyan and Zisserman (2014), configurations A, D and E; nothing is dropped out, so that runs can be compared."""

from __future__ import annotations

import torch
from torch import nn

from ringwright_lab.models.images import logits, loss, tokens

__all__ = ["blocks", "build", "head", "logits", "loss", "tokens"]
PLANS = {  # channels in widths, by depth
    11: ((1,), (2,), (4, 4), (8, 8), (8, 8)),
    16: ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8)),
    19: ((1, 1), (2, 2), (4, 4, 4, 4), (8, 8, 8, 8), (8, 8, 8, 8)),
}


def group(inputs: int, widths: list[int]) -> nn.Sequential:
    """Return convolutions with their activations, and the pooling after them."""
    layers: list[nn.Module] = []
    for outputs in widths:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.MaxPool2d(2))


class VGG(nn.Module):
    """Five groups of convolutions, two wide linear layers, and the head."""

    def __init__(self, dims: dict[str, int]) -> None:
        super().__init__()
        inputs, groups = 3, []
        for factors in PLANS[dims.get("depth", 11)]:
            groups.append(group(inputs, [factor * dims["width"] for factor in factors]))
            inputs = factors[-1] * dims["width"]
        seen, middle = inputs * dims["window"] ** 2, dims["linear"]
        wide = [nn.Sequential(nn.Linear(size, middle), nn.ReLU()) for size in (seen, middle)]
        self.window = dims["window"]
        self.blocks = nn.ModuleList([*groups, *wide])
        self.head = nn.Linear(middle, dims["classes"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, classes) of images (batch, 3, side, side)."""
        for block in self.blocks[:-2]:
            x = block(x)
        x = nn.functional.adaptive_avg_pool2d(x, self.window).flatten(1)
        for block in self.blocks[-2:]:
            x = block(x)
        logits: torch.Tensor = self.head(x)
        return logits


def build(dims: dict[str, int]) -> nn.Module:
    """Return the model with random weights."""
    return VGG(dims)


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks that repeat."""
    return list(model.blocks)


def head(model: nn.Module) -> list[nn.Module]:
    """Return what is trained when only the head is."""
    return [model.head]
