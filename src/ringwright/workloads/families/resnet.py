"""ResNet-18: a stem, four stages of two basic blocks, one linear layer; convolutions without bias, batch norm after each.

Dimensions: He et al., Deep Residual Learning for Image Recognition (2015), table 1.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Block, Layer, linear, norm

SIZES = {
    "tiny": {"width": 16, "image": 32, "classes": 10, "stem": 3},
    "resnet-18": {"width": 64, "image": 224, "classes": 1000, "stem": 7},
}
STAGES = 4
BLOCKS = 2


def convolution(name: str, outputs: int, inputs: int, window: int) -> Layer:
    """Return the weights of a convolution without bias."""
    return Layer(name, ((outputs, inputs, window, window),))


def basic(name: str, outputs: int, inputs: int, *, shortens: bool) -> Block:
    """Return a basic block; where it changes the shape, its short cut is a convolution of window 1."""
    layers = [
        convolution("first", outputs, inputs, 3), norm("first_norm", outputs, bias=True),
        convolution("second", outputs, outputs, 3), norm("second_norm", outputs, bias=True),
    ]  # fmt: skip
    if shortens:
        layers += [convolution("short", outputs, inputs, 1), norm("short_norm", outputs, bias=True)]
    return Block(name, tuple(layers))


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    width, inputs = dims["width"], dims["width"]
    stem = Block("stem", (convolution("stem", width, 3, dims["stem"]), norm("norm", width, bias=True)), unit="root")
    blocks, norms = [], [width]
    for stage in range(STAGES):
        outputs = width << stage
        for number in range(BLOCKS):
            shortens = inputs != outputs
            blocks.append(basic(f"stage{stage}.{number}", outputs, inputs, shortens=shortens))
            norms += [outputs] * (3 if shortens else 2)
            inputs = outputs
    head = Block("head", (linear("head", dims["classes"], inputs, bias=True),), unit="root")
    # A batch norm keeps a mean, a variance, and how many batches it saw.
    buffers = tuple(buffer for width in norms for buffer in ((4, width), (4, width), (8, 1)))
    return Anatomy((stem, *blocks, head), buffers=buffers)
