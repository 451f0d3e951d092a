"""BERT: post-norm encoder, biases everywhere; with its masked-word head, whose matrix is the word embedding.

With the dimension ``pooler`` it has in place of that head the square matrix that reads the first token of a sequence: so it was
published, and so its parameters are counted.

Dimensions: the public configurations of the base and large sizes.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm

SIZES = {
    "tiny": {
        "layers": 2,
        "hidden": 128,
        "heads": 4,
        "intermediate": 512,
        "vocabulary": 512,
        "positions": 128,
        "types": 2,
    },
    "bert-base": {
        "layers": 12,
        "hidden": 768,
        "heads": 12,
        "intermediate": 3072,
        "vocabulary": 30522,
        "positions": 512,
        "types": 2,
    },
    "bert-large": {
        "layers": 24,
        "hidden": 1024,
        "heads": 16,
        "intermediate": 4096,
        "vocabulary": 30522,
        "positions": 512,
        "types": 2,
    },
}
ALIASES = {"bert": "bert-base"}
IS_BUILT = True


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden, middle, vocabulary = dims["hidden"], dims["intermediate"], dims["vocabulary"]

    def square(name: str, cut: str) -> Layer:
        return linear(name, hidden, hidden, cut, bias=True)

    layers = (
        square("q", "columns"),
        square("k", "columns"),
        square("v", "columns"),
        square("o", "rows"),
        norm("norm1", hidden, bias=True),
        linear("up", middle, hidden, "columns", bias=True),
        linear("down", hidden, middle, "rows", bias=True),
        norm("norm2", hidden, bias=True),
    )
    pooled = bool(dims.get("pooler"))
    words = Layer("words", ((vocabulary, hidden),), "vocabulary", tied=not pooled)
    places, types = Layer("places", ((dims["positions"], hidden),)), Layer("types", ((dims["types"], hidden),))
    before = ModelBlock(
        "embedding",
        (words, places, types, norm("norm", hidden, bias=True)),
        ("words", "types", "places", "norm"),
        unit="root",
    )
    after = ModelBlock(
        "head",
        (Layer("bias", ((vocabulary,),)), square("transform", ""), norm("norm", hidden, bias=True)),
        ("transform", "norm", "bias"),
        unit="root",
    )
    if pooled:
        after = ModelBlock("pooler", (square("pooler", ""),), unit="root")
    blocks = [ModelBlock(f"layer{at}", layers) for at in range(dims["layers"])]
    return Anatomy((before, *blocks, after), buffers=((8, dims["positions"]),) * 2)
