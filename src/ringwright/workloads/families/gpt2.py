"""GPT-2 and GPT-3: learned positions, biases everywhere, one matrix for embedding and head; matrices are stored inputs first.

Dimensions: the public configurations of GPT-2; Brown et al., Language Models are Few-Shot Learners (2020), table 2.1, for
GPT-3, whose 50,257 words are padded to 51,200 here, as a cut over 8 ranks needs. Where that table's heads do not divide its
width (1.3B: 24 heads; 13B: a width of 5,140), the sizes that were built since are taken: 16 heads, and 5,120.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, norm

SIZES = {
    "tiny": {"layers": 3, "hidden": 128, "heads": 4, "vocabulary": 512, "positions": 256},
    "gpt2-small": {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50257, "positions": 1024},
    "gpt2-medium": {"layers": 24, "hidden": 1024, "heads": 16, "vocabulary": 50257, "positions": 1024},
    "gpt2-large": {"layers": 36, "hidden": 1280, "heads": 20, "vocabulary": 50257, "positions": 1024},
    "gpt2-xl": {"layers": 48, "hidden": 1600, "heads": 25, "vocabulary": 50257, "positions": 1024},
    "gpt3-125m": {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 51200, "positions": 2048},
    "gpt3-350m": {"layers": 24, "hidden": 1024, "heads": 16, "vocabulary": 51200, "positions": 2048},
    "gpt3-760m": {"layers": 24, "hidden": 1536, "heads": 16, "vocabulary": 51200, "positions": 2048},
    "gpt3-1.3b": {"layers": 24, "hidden": 2048, "heads": 16, "vocabulary": 51200, "positions": 2048},
    "gpt3-2.7b": {"layers": 32, "hidden": 2560, "heads": 32, "vocabulary": 51200, "positions": 2048},
    "gpt3-6.7b": {"layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 51200, "positions": 2048},
    "gpt3-13b": {"layers": 40, "hidden": 5120, "heads": 40, "vocabulary": 51200, "positions": 2048},
    "gpt3-175b": {"layers": 96, "hidden": 12288, "heads": 96, "vocabulary": 51200, "positions": 2048},
}
ALIASES = {"gpt2": "gpt2-small", "gpt3": "gpt3-175b"}
IS_BUILT = True


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    hidden = dims["hidden"]

    def matrix(name: str, inputs: int, outputs: int, cut: str) -> Layer:
        return Layer(name, ((inputs, outputs), (outputs,)), cut, inputs_first=True)

    layers = (
        norm("norm1", hidden, bias=True),
        matrix("qkv", hidden, 3 * hidden, "columns"),
        matrix("o", hidden, hidden, "rows"),
        norm("norm2", hidden, bias=True),
        matrix("up", hidden, 4 * hidden, "columns"),
        matrix("down", 4 * hidden, hidden, "rows"),
    )
    words = Layer("words", ((dims["vocabulary"], hidden),), "vocabulary", tied=True)
    before = ModelBlock("embedding", (words, Layer("places", ((dims["positions"], hidden),))), unit="root")
    after = ModelBlock("head", (norm("norm", hidden, bias=True),), unit="root")
    return Anatomy((before, *(ModelBlock(f"layer{at}", layers) for at in range(dims["layers"])), after))
