"""Layers that are neither matrices over tokens nor convolutions: patches, attention within an image, and a state space."""

from __future__ import annotations

from ringwright.workloads.layer_work import Gemm, LayerWork, Load
from ringwright.workloads.parts import Layer

ONE_A_SEQUENCE = (
    "pooler",
    "classifier",
    "time_in",
    "time_out",
    "modulation",
)  # matrices that are used for one row of each
PASSES = ("taps", "scan")  # over memory, of a state space: its convolution over a few tokens, and its recurrence


def patches(layer: Layer, load: Load) -> LayerWork:
    """Return the projection of patches, one a token: a convolution whose windows do not overlap is a matrix product."""
    outputs, inputs, height, width = layer.shapes[0]
    gemm = Gemm(load.tokens, outputs, inputs * height * width)
    moved = load.width_bytes * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
    return LayerWork(layer.name, "patches", (gemm,), 0, moved, layer.elements)


def passed(layer: Layer, load: Load) -> LayerWork:
    """Return a pass over memory: the recurrence reads input, step, gate and its two matrices, and writes as much as its input."""
    inner, *rest = layer.shapes[0]
    values = 2 * inner if layer.name == "taps" else 4 * inner + 2 * rest[-1]
    return LayerWork(layer.name, layer.name, (), 0, load.width_bytes * load.tokens * values, layer.elements)


def attended(layer: Layer, heads: int, load: Load) -> LayerWork:
    """Return the attention before a matrix of a model of whole samples: of its rows to so many keys."""
    rows, width = load.sequences * layer.rows, layer.shapes[0][1]
    moved = load.width_bytes * 2 * width * (rows + load.sequences * layer.keys)
    scores = Gemm(layer.rows, layer.keys, width // heads, load.sequences * heads)
    return LayerWork(f"{layer.name[:-1]}attention", "attention", (), 2 * scores.flops, moved, scores=scores)


def is_patches(layer: Layer) -> bool:
    """Whether a layer makes tokens of an image."""
    return layer.name == "patches"
