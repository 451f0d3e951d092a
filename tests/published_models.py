"""Models written once more, apart from the closed forms, to count their parameters and operations: DiT, a U-Net with words, DLRM."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attend


# --------------------------------------------------------------------------------------------------------------- DiT
class DiTBlock(nn.Module):
    """Attention and an MLP, each shifted, scaled and gated by what the condition says."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.modulation = nn.Linear(hidden, 6 * hidden)
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        parts = self.modulation(nn.functional.silu(condition)).unsqueeze(1).chunk(6, dim=-1)
        y = self.norm(x) * (1 + parts[1]) + parts[0]
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.attention(y).chunk(3, dim=-1))
        x = x + parts[2] * self.out(attend(q, k, v).transpose(1, 2).flatten(2))
        y = self.norm(x) * (1 + parts[4]) + parts[3]
        return x + parts[5] * self.narrow(nn.functional.gelu(self.wide(y)))


class DiT(nn.Module):
    """Peebles and Xie (2023): patches of a latent image, blocks told of time step and class, noise and its variance."""

    def __init__(self, dims: dict[str, int]) -> None:
        super().__init__()
        hidden, patch = dims["hidden"], dims["patch"]
        self.patches = nn.Conv2d(dims["channels"], hidden, patch, patch)
        self.time = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.labels = nn.Embedding(dims["classes"] + 1, hidden)
        self.places = nn.Parameter(torch.zeros(1, (dims["image"] // patch) ** 2, hidden), requires_grad=False)
        self.blocks = nn.ModuleList(DiTBlock(hidden, dims["heads"]) for _ in range(dims["layers"]))
        self.pixels = nn.Linear(hidden, 2 * dims["channels"] * patch * patch)
        self.modulation = nn.Linear(hidden, 2 * hidden)

    def forward(self, image: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2) + self.places
        condition = self.time(time) + self.labels(label)
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.modulation(condition).unsqueeze(1).chunk(2, dim=-1)
        out: torch.Tensor = self.pixels(x * (1 + scale) + shift)
        return out


# ------------------------------------------------------------------------------------------------------------- U-Net
class Residual(nn.Module):
    """Two convolutions that are told the time step between them."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.first = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2, self.second = nn.GroupNorm(32, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.first(self.norm1(x)) + self.time(time)[:, :, None, None]
        out: torch.Tensor = self.short(x) + self.second(self.norm2(y))
        return out


class Attends(nn.Module):
    """Queries of one thing, keys and values of another."""

    def __init__(self, width: int, other: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(size, width, bias=False) for size in (width, other, other))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        parts = (self.q(x), self.k(other), self.v(other))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts)
        out: torch.Tensor = self.out(attend(q, k, v).transpose(1, 2).flatten(2))
        return out


class Words(nn.Module):
    """A transformer block over pixels: they look at each other, then at the words."""

    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.norm, self.enter, self.leave = (
            nn.GroupNorm(32, width),
            nn.Conv2d(width, width, 1),
            nn.Conv2d(width, width, 1),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = Attends(width, width, heads), Attends(width, context, heads)
        self.gated, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, image: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        x = self.enter(self.norm(image)).flatten(2).transpose(1, 2)
        y = self.norms[0](x)
        x = x + self.own(y, y)
        x = x + self.cross(self.norms[1](x), words)
        value, gate = self.gated(self.norms[2](x)).chunk(2, dim=-1)
        x = x + self.down(value * nn.functional.gelu(gate))
        out: torch.Tensor = image + self.leave(x.transpose(1, 2).unflatten(2, image.shape[2:]))
        return out


class UNet(nn.Module):
    """Rombach et al. (2022), as version 1 of Stable Diffusion was published: its denoiser alone."""

    def __init__(self, dims: dict[str, int]) -> None:
        super().__init__()
        width, context, heads, time = dims["width"], dims["context"], dims["heads"], 4 * dims["width"]
        widths = [width, 2 * width, 4 * width, 4 * width]
        self.stem = nn.Conv2d(dims["channels"], width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.down, aside, now = nn.ModuleList(), [width], width
        for level, outputs in enumerate(widths):
            for _ in range(2):
                words = [Words(outputs, context, heads)] if level < 3 else []
                self.down.append(nn.ModuleList([Residual(now, outputs, time), *words]))
                now = outputs
                aside.append(now)
            if level < 3:
                self.down.append(nn.Conv2d(now, now, 3, 2, 1))
                aside.append(now)
        self.middle = nn.ModuleList([Residual(now, now, time), Words(now, context, heads), Residual(now, now, time)])
        self.up = nn.ModuleList()
        for level, outputs in reversed(list(enumerate(widths))):
            for _ in range(3):
                words = [Words(outputs, context, heads)] if level < 3 else []
                self.up.append(nn.ModuleList([Residual(now + aside.pop(), outputs, time), *words]))
                now = outputs
            if level:
                self.up.append(nn.Conv2d(now, now, 3, padding=1))
        self.norm, self.noise = nn.GroupNorm(32, now), nn.Conv2d(now, dims["channels"], 3, padding=1)

    def forward(self, image: torch.Tensor, time: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        step, x = self.time(time), self.stem(image)
        aside = [x]
        for each in self.down:
            x = _through(each, x, step, words)
            aside.append(x)
        x = _through(self.middle, x, step, words)
        for each in self.up:
            if isinstance(each, nn.Conv2d):
                x = each(nn.functional.interpolate(x, scale_factor=2.0))
            else:
                x = _through(each, torch.cat([x, aside.pop()], 1), step, words)
        out: torch.Tensor = self.noise(self.norm(x))
        return out


def _through(stage: Any, x: torch.Tensor, step: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    if isinstance(stage, nn.Conv2d):
        out: torch.Tensor = stage(x)
        return out
    for part in stage:
        x = part(x, step) if isinstance(part, Residual) else part(x, words)
    return x


# -------------------------------------------------------------------------------------------------------------- DLRM
class DLRM(nn.Module):
    """Naumov et al. (2019): tables of embeddings, an MLP for numbers, products of pairs of vectors, an MLP on top."""

    def __init__(self, rows: list[int], width: int, bottom: list[int], top: list[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(count, width, mode="sum") for count in rows)
        pairs = len(rows) * (len(rows) + 1) // 2
        self.bottom, self.top = _mlp([*bottom, width]), _mlp([width + pairs, *top, 1])

    def forward(self, numbers: torch.Tensor, indices: list[torch.Tensor]) -> torch.Tensor:
        x = self.bottom(numbers)
        vectors = torch.stack([x, *(table(index) for table, index in zip(self.tables, indices, strict=True))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        below = torch.tril_indices(*products.shape[1:], offset=-1)
        out: torch.Tensor = self.top(torch.cat([x, products[:, below[0], below[1]]], 1))
        return out


def _mlp(widths: list[int]) -> nn.Sequential:
    layers = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
