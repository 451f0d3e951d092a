"""GPT-2: learned positions, biases everywhere, one matrix for embedding and head; matrices are stored inputs first.

Dimensions: the public configurations of the four sizes.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Block, Layer, norm

SIZES = {
    "tiny": {"layers": 3, "hidden": 128, "heads": 4, "vocabulary": 512, "positions": 256},
    "gpt2-small": {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50257, "positions": 1024},
    "gpt2-medium": {"layers": 24, "hidden": 1024, "heads": 16, "vocabulary": 50257, "positions": 1024},
    "gpt2-large": {"layers": 36, "hidden": 1280, "heads": 20, "vocabulary": 50257, "positions": 1024},
    "gpt2-xl": {"layers": 48, "hidden": 1600, "heads": 25, "vocabulary": 50257, "positions": 1024},
}


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden = dims["hidden"]

    def matrix(name: str, inputs: int, outputs: int) -> Layer:
        return Layer(name, ((inputs, outputs), (outputs,)))

    layers = (
        norm("norm1", hidden, bias=True), matrix("qkv", hidden, 3 * hidden), matrix("o", hidden, hidden),
        norm("norm2", hidden, bias=True), matrix("up", hidden, 4 * hidden), matrix("down", 4 * hidden, hidden),
    )  # fmt: skip
    words = Layer("words", ((dims["vocabulary"], hidden),), "vocabulary", tied=True)
    before = Block("embedding", (words, Layer("places", ((dims["positions"], hidden),))), unit="root")
    after = Block("head", (norm("norm", hidden, bias=True),), unit="root")
    return Anatomy((before, *(Block(f"layer{at}", layers) for at in range(dims["layers"])), after))
