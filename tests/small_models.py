"""Gradient tensors of two networks, last layer first, in elements."""

from __future__ import annotations


def resnet50() -> list[int]:
    """161 tensors, 25.557 M parameters."""
    sizes = [7 * 7 * 3 * 64, 64, 64]
    width = 64
    for blocks, inner in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            for conv, channels in ((width * inner, inner), (inner * inner * 9, inner), (inner * inner * 4, inner * 4)):
                sizes += [conv, channels, channels]
            if block == 0:
                sizes += [width * inner * 4, inner * 4, inner * 4]
            width = inner * 4
    return [*sizes, 2048 * 1000, 1000][::-1]


def alexnet() -> list[int]:
    """16 tensors, 61.1 M parameters."""
    weights = [64 * 3 * 121, 192 * 64 * 25, 384 * 192 * 9, 256 * 384 * 9, 256 * 256 * 9]
    weights += [9216 * 4096, 4096 * 4096, 4096 * 1000]
    biases = [64, 192, 384, 256, 256, 4096, 4096, 1000]
    return [size for pair in zip(weights, biases, strict=True) for size in pair][::-1]
