"""VGG-11: eight convolutions with bias, then three linear layers that hold nine tenths of the parameters.

Dimensions: Simonyan and Zisserman, Very Deep Convolutional Networks (2014), configuration A.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Block, Layer, linear

SIZES = {
    "tiny": {"width": 8, "image": 32, "classes": 10, "linear": 512, "window": 1},
    "vgg-11": {"width": 64, "image": 224, "classes": 1000, "linear": 4096, "window": 7},
}
PLAN = ((1,), (2,), (4, 4), (8, 8), (8, 8))  # channels in widths; the image is halved after each group


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    blocks, inputs = [], 3
    for at, group in enumerate(PLAN):
        layers = []
        for number, factor in enumerate(group):
            outputs = factor * dims["width"]
            layers.append(Layer(f"convolution{number}", ((outputs, inputs, 3, 3), (outputs,)), bias_first=False))
            inputs = outputs
        blocks.append(Block(f"group{at}", tuple(layers)))
    seen, middle = inputs * dims["window"] ** 2, dims["linear"]
    blocks += [
        Block("linear0", (linear("linear", middle, seen, bias=True),)),
        Block("linear1", (linear("linear", middle, middle, bias=True),)),
        Block("head", (linear("head", dims["classes"], middle, bias=True),), unit="root"),
    ]
    return Anatomy(tuple(blocks))
