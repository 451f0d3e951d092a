"""Transformer: encoder and decoder, post-norm, biases everywhere, one matrix for both embeddings and the outputs.

Dimensions: Vaswani et al., Attention Is All You Need (2017), table 3, base; the vocabulary, which decides how large the largest
tensor is, is a dimension (37,000 there for English and German). Positions are computed, not learned.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm

SIZES = {
    "transformer": {"layers": 6, "hidden": 512, "heads": 8, "intermediate": 2048, "vocabulary": 37000},
    "transformer-big": {"layers": 6, "hidden": 1024, "heads": 16, "intermediate": 4096, "vocabulary": 37000},
}
ALIASES = {"transformer-base": "transformer"}
SEQUENCES = {"transformer": 128, "transformer-big": 128}  # tokens, as they were trained


def attention(hidden: int, prefix: str = "") -> tuple[Layer, ...]:
    """Return the four square matrices of attention."""
    columns = (linear(f"{prefix}{name}", hidden, hidden, "columns", bias=True) for name in "qkv")
    return (*columns, linear(f"{prefix}o", hidden, hidden, "rows", bias=True))


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden, middle = dims["hidden"], dims["intermediate"]
    inner = (linear("up", middle, hidden, "columns", bias=True), linear("down", hidden, middle, "rows", bias=True))
    first, second, third = (norm(f"norm{at}", hidden, bias=True) for at in (1, 2, 3))
    encoder = (*attention(hidden), first, *inner, second)
    decoder = (*attention(hidden), first, *attention(hidden, "cross_"), second, *inner, third)
    words = Layer("words", ((dims["vocabulary"], hidden),), "vocabulary", tied=True)
    return Anatomy(
        (
            ModelBlock("embedding", (words,), unit="root"),
            *(ModelBlock(f"encoder{at}", encoder) for at in range(dims["layers"])),
            *(ModelBlock(f"decoder{at}", decoder) for at in range(dims["layers"])),
        )
    )
