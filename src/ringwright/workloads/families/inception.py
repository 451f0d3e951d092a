"""Inception v3: 94 convolutions with batch norm in branches, one linear layer, and an auxiliary head while it is trained.

Dimensions: Szegedy et al., Rethinking the Inception Architecture (2016), table 1 and figures 5 to 7, as the libraries build it.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm, window

SIZES = {
    "inception-v3": {"image": 299, "classes": 1000, "auxiliary": 1},
    "inception-v3-no-aux": {"image": 299, "classes": 1000, "auxiliary": 0},
}
ALIASES = {"inception": "inception-v3"}
# A line a block: its name, then its convolutions as inputs>outputs:window:side before>side after, for an image of 299.
TABLE = """
stem    3>32:3:299>149 32>32:3:149>147 32>64:3:147>147 64>80:1:73>73 80>192:3:73>71
35a     192>64:1:35>35 192>48:1:35>35 48>64:5:35>35 192>64:1:35>35 64>96:3:35>35 96>96:3:35>35 192>32:1:35>35
35b     256>64:1:35>35 256>48:1:35>35 48>64:5:35>35 256>64:1:35>35 64>96:3:35>35 96>96:3:35>35 256>64:1:35>35
35c     288>64:1:35>35 288>48:1:35>35 48>64:5:35>35 288>64:1:35>35 64>96:3:35>35 96>96:3:35>35 288>64:1:35>35
35to17  288>384:3:35>17 288>64:1:35>35 64>96:3:35>35 96>96:3:35>17
17a     768>192:1:17>17 768>128:1:17>17 128>128:1x7:17>17 128>192:7x1:17>17 768>128:1:17>17 128>128:7x1:17>17
+       128>128:1x7:17>17 128>128:7x1:17>17 128>192:1x7:17>17 768>192:1:17>17
17b     768>192:1:17>17 768>160:1:17>17 160>160:1x7:17>17 160>192:7x1:17>17 768>160:1:17>17 160>160:7x1:17>17
+       160>160:1x7:17>17 160>160:7x1:17>17 160>192:1x7:17>17 768>192:1:17>17
17c     768>192:1:17>17 768>160:1:17>17 160>160:1x7:17>17 160>192:7x1:17>17 768>160:1:17>17 160>160:7x1:17>17
+       160>160:1x7:17>17 160>160:7x1:17>17 160>192:1x7:17>17 768>192:1:17>17
17d     768>192:1:17>17 768>192:1:17>17 192>192:1x7:17>17 192>192:7x1:17>17 768>192:1:17>17 192>192:7x1:17>17
+       192>192:1x7:17>17 192>192:7x1:17>17 192>192:1x7:17>17 768>192:1:17>17
aux     768>128:1:5>5 128>768:5:5>1
17to8   768>192:1:17>17 192>320:3:17>8 768>192:1:17>17 192>192:1x7:17>17 192>192:7x1:17>17 192>192:3:17>8
8a      1280>320:1:8>8 1280>384:1:8>8 384>384:1x3:8>8 384>384:3x1:8>8 1280>448:1:8>8 448>384:3:8>8 384>384:1x3:8>8
+       384>384:3x1:8>8 1280>192:1:8>8
8b      2048>320:1:8>8 2048>384:1:8>8 384>384:1x3:8>8 384>384:3x1:8>8 2048>448:1:8>8 448>384:3:8>8 384>384:1x3:8>8
+       384>384:3x1:8>8 2048>192:1:8>8
"""
LAST_CHANNELS, AUXILIARY_CHANNELS = 2048, 768


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    blocks, norms = [], []
    for name, convolutions in _table(dims):
        layers: list[Layer] = []
        for number, (inputs, outputs, height, width, *_) in enumerate(convolutions):
            layers.append(window(f"convolution{number}", outputs, inputs, height, width))
            layers.append(norm(f"norm{number}", outputs, bias=True))
            norms.append(outputs)
        if name == "aux":
            layers.append(linear("head", dims["classes"], AUXILIARY_CHANNELS, bias=True))
        blocks.append(ModelBlock(name, tuple(layers)))
    head = ModelBlock("head", (linear("head", dims["classes"], LAST_CHANNELS, bias=True),), unit="root")
    # A batch norm keeps a mean, a variance, and how many batches it saw.
    buffers = tuple(buffer for channels in norms for buffer in ((4, channels), (4, channels), (8, 1)))
    return Anatomy((*blocks, head), buffers=buffers)


def sides(dims: dict[str, int]) -> list[tuple[int, int]]:
    """Return the sides (pixels) of the image that goes into and comes out of each convolution."""
    return [(row[4], row[5]) for _, convolutions in _table(dims) for row in convolutions]


def branches(dims: dict[str, int]) -> set[str]:
    """Return the layers, with their blocks, that take what goes into the block: as many channels as its first one takes.

    Two of 8a's and 8b's branches end in a pair side by side; the pair is taken one after the other.
    """
    return {
        f"{name}.convolution{at}"
        for name, rows in _table(dims)
        for at, row in enumerate(rows)
        if at and row[0] == rows[0][0] and name not in ("stem", "aux")
    }


def _table(dims: dict[str, int]) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Return blocks with their convolutions: inputs, outputs, height and width of the window, side before and after."""
    table: list[tuple[str, list[tuple[int, ...]]]] = []
    for line in TABLE.strip().splitlines():
        name, *words = line.split()
        if name != "+":
            table.append((name, []))
        table[-1][1].extend(_convolution(word) for word in words)
    return [(name, rows) for name, rows in table if name != "aux" or dims["auxiliary"]]


def _convolution(word: str) -> tuple[int, ...]:
    channels, side, image = word.split(":")
    inputs, outputs = channels.split(">")
    height, _, width = side.partition("x")
    before, after = image.split(">")
    return int(inputs), int(outputs), int(height), int(width or height), int(before), int(after)
