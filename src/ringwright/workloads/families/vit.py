"""Vision Transformer: an image cut into square patches, a pre-norm encoder with biases everywhere, a class token to classify.

A token is a patch, or the class token: an image of 224 pixels in patches of 16 has 197, neither more nor less.

Dimensions: Dosovitskiy et al., An Image is Worth 16x16 Words (2021), table 1, with the 1,000 classes of ImageNet.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm, window

BASE = {"layers": 12, "hidden": 768, "intermediate": 3072, "heads": 12, "image": 224, "classes": 1000}
LARGE = {"layers": 24, "hidden": 1024, "intermediate": 4096, "heads": 16, "image": 224, "classes": 1000}
HUGE = {"layers": 32, "hidden": 1280, "intermediate": 5120, "heads": 16, "image": 224, "classes": 1000}
SIZES = {
    "vit-b-16": {**BASE, "patch": 16},
    "vit-l-16": {**LARGE, "patch": 16},
    "vit-l-32": {**LARGE, "patch": 32},
    "vit-h-14": {**HUGE, "patch": 14},
}
ALIASES = {"vit": "vit-l-16", "vit-base": "vit-b-16", "vit-large": "vit-l-16", "vit-huge": "vit-h-14"}
COLOURS = 3


def tokens(dims: dict[str, int]) -> int:
    """Return the tokens of an image: its patches and the class token."""
    return (dims["image"] // dims["patch"]) ** 2 + 1


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden, middle = dims["hidden"], dims["intermediate"]
    layers = (
        norm("norm1", hidden, bias=True),
        *(linear(name, hidden, hidden, "columns", bias=True) for name in "qkv"),
        linear("o", hidden, hidden, "rows", bias=True),
        norm("norm2", hidden, bias=True),
        linear("up", middle, hidden, "columns", bias=True),
        linear("down", hidden, middle, "rows", bias=True),
    )
    places = Layer("places", ((1, 1, hidden), (1, tokens(dims), hidden)))
    patches = window("patches", hidden, COLOURS, dims["patch"], bias=True)
    before = ModelBlock("embedding", (places, patches), ("patches", "places"), unit="root")
    classifier = linear("classifier", dims["classes"], hidden, bias=True)
    after = ModelBlock("classifier", (norm("norm", hidden, bias=True), classifier), unit="root")
    return Anatomy((before, *(ModelBlock(f"layer{at}", layers) for at in range(dims["layers"])), after))
