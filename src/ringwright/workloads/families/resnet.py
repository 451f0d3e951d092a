"""ResNet: a stem, four stages of blocks, one linear layer; convolutions without bias, batch norm after each.

Dimensions: He et al., Deep Residual Learning for Image Recognition (2015), table 1; in blocks with a bottleneck the image is
halved by the convolution of window 3, as the libraries do since, and not by the one before it.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm, window

SIZES = {
    "tiny": {"width": 16, "image": 32, "classes": 10, "stem": 3},
    "resnet-18": {"width": 64, "image": 224, "classes": 1000, "stem": 7},
    "resnet-50": {"width": 64, "image": 224, "classes": 1000, "stem": 7, "depth": 50},
    "resnet-101": {"width": 64, "image": 224, "classes": 1000, "stem": 7, "depth": 101},
    "resnet-152": {"width": 64, "image": 224, "classes": 1000, "stem": 7, "depth": 152},
}
IS_BUILT = True
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # of each stage, by depth
DEPTHS = tuple(BLOCKS)
BOTTLENECK = 50  # from this depth on
WIDENED = 4  # channels that leave a bottleneck, in those inside


def basic(outputs: int, inputs: int, *, shortens: bool) -> tuple[Layer, ...]:
    """Return a basic block; where it changes the shape, its short cut is a convolution of window 1."""
    layers = [
        window("first", outputs, inputs, 3),
        norm("first_norm", outputs, bias=True),
        window("second", outputs, outputs, 3),
        norm("second_norm", outputs, bias=True),
    ]
    return (*layers, *_short(outputs, inputs)) if shortens else tuple(layers)


def bottleneck(width: int, inputs: int, *, shortens: bool) -> tuple[Layer, ...]:
    """Return a block that narrows to ``width`` channels, convolves, and widens again."""
    outputs = WIDENED * width
    layers = [
        window("narrow", width, inputs, 1),
        norm("narrow_norm", width, bias=True),
        window("middle", width, width, 3),
        norm("middle_norm", width, bias=True),
        window("widen", outputs, width, 1),
        norm("widen_norm", outputs, bias=True),
    ]
    return (*layers, *_short(outputs, inputs)) if shortens else tuple(layers)


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    depth, inputs = dims.get("depth", 18), dims["width"]
    stem = ModelBlock("stem", (window("stem", inputs, 3, dims["stem"]), norm("norm", inputs, bias=True)), unit="root")
    blocks = [stem]
    for stage, number in enumerate(BLOCKS[depth]):
        width = dims["width"] << stage
        outputs = WIDENED * width if depth >= BOTTLENECK else width
        for at in range(number):
            shortens = inputs != outputs
            make = bottleneck if depth >= BOTTLENECK else basic
            blocks.append(ModelBlock(f"stage{stage}.{at}", make(width, inputs, shortens=shortens)))
            inputs = outputs
    head = ModelBlock("head", (linear("head", dims["classes"], inputs, bias=True),), unit="root")
    norms = [layer for block in blocks for layer in block.layers if layer.name.endswith("norm")]
    # A batch norm keeps a mean, a variance, and how many batches it saw.
    buffers = tuple(buffer for layer in norms for buffer in ((4, layer.shapes[0][0]), (4, layer.shapes[0][0]), (8, 1)))
    return Anatomy((*blocks, head), buffers=buffers)


def sides(dims: dict[str, int]) -> list[tuple[int, int]]:
    """Return the sides (pixels) of the image that goes into and comes out of each convolution."""
    image, pairs = dims["image"], []
    if dims["stem"] > 3:  # large images are halved by the stem, and by the pooling after it
        pairs, side = [(image, -(-image // 2))], -(-image // 4)
    else:
        pairs, side = [(image, image)], image
    for block in anatomy(dims).blocks[1:-1]:
        halved = block.name.endswith(".0") and block.name != "stage0.0"
        after = -(-side // 2) if halved else side
        for layer in block.layers:
            if len(layer.shapes[0]) == 4:
                before = after if layer.name in ("second", "widen") else side
                pairs.append((before, side if layer.name == "narrow" else after))
        side = after
    return pairs


def branches(dims: dict[str, int]) -> set[str]:
    """Return the layers, with their blocks, that take what goes into the block: short cuts."""
    return {
        f"{block.name}.short" for block in anatomy(dims).blocks if any(each.name == "short" for each in block.layers)
    }


def _short(outputs: int, inputs: int) -> tuple[Layer, ...]:
    return window("short", outputs, inputs, 1), norm("short_norm", outputs, bias=True)
