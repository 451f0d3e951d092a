"""Llama: pre-norm decoder, grouped-query attention, gated MLP, no biases, embedding and head apart.

Dimensions: the public configuration files of the models, and torchtitan's table for Llama 3 in 70B and 405B.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm

SIZES = {
    "tiny": {
        "layers": 2,
        "hidden": 128,
        "intermediate": 384,
        "heads": 8,
        "kv_heads": 4,
        "head": 16,
        "vocabulary": 512,
        "positions": 256,
    },
    "llama2-7b": {
        "layers": 32,
        "hidden": 4096,
        "intermediate": 11008,
        "heads": 32,
        "kv_heads": 32,
        "head": 128,
        "vocabulary": 32000,
        "positions": 4096,
    },
    "llama2-13b": {
        "layers": 40,
        "hidden": 5120,
        "intermediate": 13824,
        "heads": 40,
        "kv_heads": 40,
        "head": 128,
        "vocabulary": 32000,
        "positions": 4096,
    },
    "llama2-70b": {
        "layers": 80,
        "hidden": 8192,
        "intermediate": 28672,
        "heads": 64,
        "kv_heads": 8,
        "head": 128,
        "vocabulary": 32000,
        "positions": 4096,
    },
    "llama3-8b": {
        "layers": 32,
        "hidden": 4096,
        "intermediate": 14336,
        "heads": 32,
        "kv_heads": 8,
        "head": 128,
        "vocabulary": 128256,
        "positions": 8192,
    },
    "llama3-70b": {
        "layers": 80,
        "hidden": 8192,
        "intermediate": 28672,
        "heads": 64,
        "kv_heads": 8,
        "head": 128,
        "vocabulary": 128256,
        "positions": 8192,
    },
    "llama3-405b": {
        "layers": 126,
        "hidden": 16384,
        "intermediate": 53248,
        "heads": 128,
        "kv_heads": 8,
        "head": 128,
        "vocabulary": 128256,
        "positions": 8192,
    },
}
ALIASES = {"llama3.1-8b": "llama3-8b", "llama3.1-70b": "llama3-70b", "llama3.1-405b": "llama3-405b"}
IS_BUILT = True
ATTENTION_USE = ("input_norm", "q", "k", "v", "o", "post_norm")


def attention(dims: dict[str, int]) -> tuple[Layer, ...]:
    """Return the matrices of grouped-query attention."""
    hidden, head = dims["hidden"], dims["head"]
    return (
        linear("q", dims["heads"] * head, hidden, "columns"),
        linear("k", dims["kv_heads"] * head, hidden, "columns"),
        linear("v", dims["kv_heads"] * head, hidden, "columns"),
        linear("o", hidden, dims["heads"] * head, "rows"),
    )


def gated(hidden: int, intermediate: int, prefix: str = "") -> tuple[Layer, ...]:
    """Return the matrices of a gated MLP."""
    return (
        linear(f"{prefix}gate", intermediate, hidden, "columns"),
        linear(f"{prefix}up", intermediate, hidden, "columns"),
        linear(f"{prefix}down", hidden, intermediate, "rows"),
    )


def ends(dims: dict[str, int]) -> tuple[ModelBlock, ModelBlock]:
    """Return what comes before and after the blocks of a decoder."""
    vocabulary, hidden = dims["vocabulary"], dims["hidden"]
    return (
        ModelBlock("embedding", (Layer("embedding", ((vocabulary, hidden),), "vocabulary"),), unit="root"),
        ModelBlock("head", (norm("norm", hidden), linear("head", vocabulary, hidden, "columns")), unit="root"),
    )


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden = dims["hidden"]
    layers = (
        *attention(dims),
        *gated(hidden, dims["intermediate"]),
        norm("input_norm", hidden),
        norm("post_norm", hidden),
    )
    before, after = ends(dims)
    blocks = [ModelBlock(f"layer{at}", layers, (*ATTENTION_USE, "gate", "up", "down")) for at in range(dims["layers"])]
    return Anatomy((before, *blocks, after), buffers=((4, dims["head"] // 2),) * 2)
