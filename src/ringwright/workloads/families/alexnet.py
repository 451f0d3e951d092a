"""AlexNet in one column: five convolutions and three linear layers, all with bias.

Dimensions: Krizhevsky, One weird trick for parallelizing convolutional neural networks (2014), the model without groups.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, ModelBlock, linear, window

SIZES = {"alexnet": {"image": 224, "classes": 1000, "linear": 4096, "window": 6}}
# outputs, inputs, window, sides of the image before and after for an image of 224
CONVOLUTIONS = (
    (64, 3, 11, 224, 55),
    (192, 64, 5, 27, 27),
    (384, 192, 3, 13, 13),
    (256, 384, 3, 13, 13),
    (256, 256, 3, 13, 13),
)


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    blocks = [
        ModelBlock(f"convolution{at}", (window("convolution", outputs, inputs, side, bias=True),))
        for at, (outputs, inputs, side, *_) in enumerate(CONVOLUTIONS)
    ]
    seen, middle = CONVOLUTIONS[-1][0] * dims["window"] ** 2, dims["linear"]
    blocks += [
        ModelBlock("linear0", (linear("linear", middle, seen, bias=True),)),
        ModelBlock("linear1", (linear("linear", middle, middle, bias=True),)),
        ModelBlock("head", (linear("head", dims["classes"], middle, bias=True),), unit="root"),
    ]
    return Anatomy(tuple(blocks))


def sides(_dims: dict[str, int]) -> list[tuple[int, int]]:
    """Return the sides (pixels) of the image that goes into and comes out of each convolution."""
    return [(before, after) for *_, before, after in CONVOLUTIONS]
