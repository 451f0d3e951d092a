"""ResNet after He et al. (2015), table 1; a bottleneck halves the image in its convolution of window 3."""

from __future__ import annotations

import torch
from torch import nn

from ringwright_lab.models.images import logits, loss, tokens

__all__ = ["blocks", "build", "head", "logits", "loss", "tokens"]
NUMBERS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # blocks of a stage, by depth


def convolution(inputs: int, outputs: int, window: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the image's size, but for the stride."""
    return nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False)


class Basic(nn.Module):
    """Two convolutions beside a short cut."""

    widened = 1

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.second, self.second_norm = convolution(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.shortens = stride != 1 or inputs != outputs
        if self.shortens:
            self.short, self.short_norm = convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's answer."""
        y = torch.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        if self.shortens:
            x = self.short_norm(self.short(x))
        return torch.relu(x + y)


class Bottleneck(nn.Module):
    """A convolution between one that narrows and one that widens, beside a short cut."""

    widened = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = self.widened * width
        self.narrow, self.narrow_norm = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.middle, self.middle_norm = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.widen, self.widen_norm = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.shortens = stride != 1 or inputs != outputs
        if self.shortens:
            self.short, self.short_norm = convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's answer."""
        y = torch.relu(self.narrow_norm(self.narrow(x)))
        y = torch.relu(self.middle_norm(self.middle(y)))
        y = self.widen_norm(self.widen(y))
        if self.shortens:
            x = self.short_norm(self.short(x))
        return torch.relu(x + y)


class ResNet(nn.Module):
    """Four stages of blocks; small images keep their size in the stem."""

    def __init__(self, dims: dict[str, int]) -> None:
        super().__init__()
        width, window = dims["width"], dims["stem"]
        self.large = window > 3
        self.stem, self.norm = convolution(3, width, window, 2 if self.large else 1), nn.BatchNorm2d(width)
        depth = dims.get("depth", 18)
        made = Basic if depth < 50 else Bottleneck
        stages, inputs = [], width
        for stage, blocks_of_it in enumerate(NUMBERS[depth]):
            for number in range(blocks_of_it):
                stages.append(made(inputs, width << stage, 2 if stage and not number else 1))
                inputs = made.widened * (width << stage)
        self.blocks = nn.ModuleList(stages)
        self.head = nn.Linear(inputs, dims["classes"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, classes) of images (batch, 3, side, side)."""
        x = torch.relu(self.norm(self.stem(x)))
        if self.large:
            x = nn.functional.max_pool2d(x, 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x.mean((2, 3)))
        return logits


def build(dims: dict[str, int]) -> nn.Module:
    """Return the model with random weights."""
    return ResNet(dims)


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks that repeat."""
    return list(model.blocks)


def head(model: nn.Module) -> list[nn.Module]:
    """Return what is trained when only the head is."""
    return [model.head]
