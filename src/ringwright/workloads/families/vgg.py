"""VGG: convolutions of window 3 with bias in five groups, then three linear layers that hold most of the parameters.

Dimensions: Simonyan and Zisserman, Very Deep Convolutional Networks (2014), configurations A, D and E; with 21,841 classes
(all of ImageNet's) configuration E is the VGG19-22K of Zhang et al., Poseidon (2017).
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear

SIZES = {
    "tiny": {"width": 8, "image": 32, "classes": 10, "linear": 512, "window": 1},
    "vgg-11": {"width": 64, "image": 224, "classes": 1000, "linear": 4096, "window": 7},
    "vgg-16": {"width": 64, "image": 224, "classes": 1000, "linear": 4096, "window": 7, "depth": 16},
    "vgg-19": {"width": 64, "image": 224, "classes": 1000, "linear": 4096, "window": 7, "depth": 19},
    "vgg-19-22k": {"width": 64, "image": 224, "classes": 21841, "linear": 4096, "window": 7, "depth": 19},
}
ALIASES = {"vgg19-22k": "vgg-19-22k"}
IS_BUILT = True
CHANNELS = (1, 2, 4, 8, 8)  # of a group, in widths; the image is halved after each
CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # of each group, by depth
DEPTHS = tuple(CONVOLUTIONS)


def plan(dims: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """Return the channels of each convolution, in widths, group by group."""
    depth = dims.get("depth", 11)
    return tuple((factor,) * number for factor, number in zip(CHANNELS, CONVOLUTIONS[depth], strict=True))


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    blocks, inputs = [], 3
    for at, group in enumerate(plan(dims)):
        layers = []
        for number, factor in enumerate(group):
            outputs = factor * dims["width"]
            layers.append(Layer(f"convolution{number}", ((outputs, inputs, 3, 3), (outputs,)), bias_first=False))
            inputs = outputs
        blocks.append(ModelBlock(f"group{at}", tuple(layers)))
    seen, middle = inputs * dims["window"] ** 2, dims["linear"]
    blocks += [
        ModelBlock("linear0", (linear("linear", middle, seen, bias=True),)),
        ModelBlock("linear1", (linear("linear", middle, middle, bias=True),)),
        ModelBlock("head", (linear("head", dims["classes"], middle, bias=True),), unit="root"),
    ]
    return Anatomy(tuple(blocks))


def sides(dims: dict[str, int]) -> list[tuple[int, int]]:
    """Return the sides (pixels) of the image that goes into and comes out of each convolution."""
    return [(dims["image"] >> at, dims["image"] >> at) for at, group in enumerate(plan(dims)) for _ in group]
