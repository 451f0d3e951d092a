"""Diffusion models of images, one denoising step: DiT, a transformer over patches of a latent image, and a U-Net with text.

DiT: every block is shifted and scaled by what one matrix makes of time step and class; its norms have no parameters, and its
positions no gradient. U-Net: residual blocks that are told the time step, and transformer blocks that look at the image and at
the words of a prompt, down to an eighth of the side and up again. Text encoder and autoencoder are models of their own.

Dimensions: Peebles and Xie, Scalable Diffusion Models with Transformers (2023), table 1, patches of 2; Rombach et al.,
High-Resolution Image Synthesis with Latent Diffusion Models (2022), as version 1 of Stable Diffusion was published.
"""

from __future__ import annotations

from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear, norm, window

LATENT = {"patch": 2, "image": 32, "channels": 4, "classes": 1000}  # of an image of 256 pixels
SIZES = {
    "dit-s-2": {"layers": 12, "hidden": 384, "heads": 6, **LATENT},
    "dit-b-2": {"layers": 12, "hidden": 768, "heads": 12, **LATENT},
    "dit-l-2": {"layers": 24, "hidden": 1024, "heads": 16, **LATENT},
    "dit-xl-2": {"layers": 28, "hidden": 1152, "heads": 16, **LATENT},
    "stable-diffusion-1.5": {"image": 64, "width": 320, "heads": 8, "channels": 4, "context": 768, "words": 77},
}
ALIASES = {"dit": "dit-xl-2", "stable-diffusion": "stable-diffusion-1.5", "sd-1.5": "stable-diffusion-1.5"}
REFUSED = {
    "sp": ("its public code cuts no sequence, and there is no norm of its own between two cut matrices", "tp alone"),
    "cp": ("its public code keeps an image on one rank", "dp, tp or fsdp"),
    "pp": ("every block needs what is made of the time step, which stages would have to hand on", "dp, tp or fsdp"),
}
FREQUENCIES = 256  # of the time step, before its first matrix
LEVELS = (1, 2, 4, 4)  # of the U-Net, in widths; the side is halved after each but the last
DOWN, UP = 2, 3  # residual blocks of a level on each way
TIME = 4  # width of what is made of the time step, in widths


def tokens(dims: dict[str, int]) -> int:
    """Return the tokens of a latent image: its patches; 0 for the U-Net, which has none."""
    return (dims["image"] // dims["patch"]) ** 2 if "patch" in dims else 0


def untrained(dims: dict[str, int]) -> int:
    """Return the positions of DiT, which are computed and kept among its parameters."""
    return tokens(dims) * dims.get("hidden", 0)


def anatomy(dims: dict[str, int]) -> Anatomy:
    """Return the parameters for these dimensions."""
    return _transformer(dims) if "patch" in dims else Anatomy(tuple(_unet(dims)))


def sides(dims: dict[str, int]) -> list[tuple[int, int]]:
    """Return the sides (pixels of the latent image) that go into and come out of each convolution of the U-Net."""
    pairs = []
    for block in anatomy(dims).blocks:
        for layer in block.layers:
            if len(layer.shapes[0]) == 4:
                side = _side(dims, block.name)
                pairs.append({"halve": (side, side // 2), "double": (2 * side, 2 * side)}.get(layer.name, (side, side)))
    return pairs


def branches(dims: dict[str, int]) -> set[str]:
    """Return the layers, with their blocks, that take what goes into the block: short cuts."""
    return {f"{block.name}.short" for block in anatomy(dims).blocks for layer in block.layers if layer.name == "short"}


# --------------------------------------------------------------------------------------------------------------- DiT
def _transformer(dims: dict[str, int]) -> Anatomy:
    hidden, patch = dims["hidden"], dims["patch"]
    layers = (
        linear("qkv", 3 * hidden, hidden, "columns", bias=True),
        linear("o", hidden, hidden, "rows", bias=True),
        linear("up", 4 * hidden, hidden, "columns", bias=True),
        linear("down", hidden, 4 * hidden, "rows", bias=True),
        linear("modulation", 6 * hidden, hidden, bias=True),
    )
    use = ("modulation", "qkv", "o", "up", "down")
    before = (
        window("patches", hidden, dims["channels"], patch, bias=True),
        linear("time_in", hidden, FREQUENCIES, bias=True),
        linear("time_out", hidden, hidden, bias=True),
        Layer("labels", ((dims["classes"] + 1, hidden),)),  # one more stands for none
    )
    after = (
        linear("pixels", 2 * dims["channels"] * patch * patch, hidden, bias=True),  # noise and its variance
        linear("modulation", 2 * hidden, hidden, bias=True),
    )
    return Anatomy(
        (
            ModelBlock("embedding", before, unit="root"),
            *(ModelBlock(f"layer{at}", layers, use) for at in range(dims["layers"])),
            ModelBlock("pixels", after, ("modulation", "pixels"), unit="root"),
        )
    )


# ------------------------------------------------------------------------------------------------------------- U-Net
def _unet(dims: dict[str, int]) -> list[ModelBlock]:
    width, time = dims["width"], TIME * dims["width"]
    stem = window("stem", width, dims["channels"], 3, bias=True)
    times = (linear("time_in", time, width, bias=True), linear("time_out", time, time, bias=True))
    blocks, aside = [ModelBlock("stem", (stem, *times), unit="root")], [width]
    inputs = width
    for level, factor in enumerate(LEVELS):
        is_last, outputs = level == len(LEVELS) - 1, factor * width
        for at in range(DOWN):
            blocks += _step(dims, f"down{level}.{at}", inputs, outputs, attends=not is_last)
            inputs = outputs
            aside.append(inputs)
        if not is_last:
            blocks.append(ModelBlock(f"down{level}.half", (window("halve", inputs, inputs, 3, bias=True),)))
            aside.append(inputs)
    blocks += [*_step(dims, "middle.0", inputs, inputs, attends=True), *_step(dims, "middle.1", inputs, inputs)]
    for level, factor in reversed(list(enumerate(LEVELS))):
        for at in range(UP):
            attends = level < len(LEVELS) - 1
            blocks += _step(dims, f"up{level}.{at}", inputs + aside.pop(), factor * width, attends=attends)
            inputs = factor * width
        if level:
            blocks.append(ModelBlock(f"up{level}.double", (window("double", inputs, inputs, 3, bias=True),)))
    end = (norm("norm", inputs, bias=True), window("noise", dims["channels"], inputs, 3, bias=True))
    return [*blocks, ModelBlock("noise", end, unit="root")]


def _step(dims: dict[str, int], name: str, inputs: int, outputs: int, *, attends: bool = False) -> list[ModelBlock]:
    """Return a residual block, and a transformer block behind it where there is one."""
    short = (window("short", outputs, inputs, 1, bias=True),) if inputs != outputs else ()
    residual = (
        norm("first_norm", inputs, bias=True),
        window("first", outputs, inputs, 3, bias=True),
        linear("time", outputs, TIME * dims["width"], bias=True),
        norm("second_norm", outputs, bias=True),
        window("second", outputs, outputs, 3, bias=True),
        *short,
    )
    return [ModelBlock(name, residual), *([ModelBlock(f"{name}.words", _attention(dims, name, outputs))] * attends)]


def _attention(dims: dict[str, int], name: str, width: int) -> tuple[Layer, ...]:
    """Return a transformer block: attention to the image, attention to the words, and a gated MLP, each behind a norm."""
    rows, words, context = _side(dims, name) ** 2, dims["words"], dims["context"]

    def matrix(label: str, outputs: int, inputs: int, *, at: int = rows, keys: int = 0, bias: bool = False) -> Layer:
        shapes = ((outputs, inputs), (outputs,)) if bias else ((outputs, inputs),)
        return Layer(label, shapes, rows=at, keys=keys)

    return (
        norm("image_norm", width, bias=True),
        window("enter", width, width, 1, bias=True),
        norm("norm1", width, bias=True),
        *(matrix(label, width, width) for label in "qkv"),
        matrix("o", width, width, keys=rows, bias=True),
        norm("norm2", width, bias=True),
        matrix("cross_q", width, width),
        *(matrix(f"cross_{label}", width, context, at=words) for label in "kv"),
        matrix("cross_o", width, width, keys=words, bias=True),
        norm("norm3", width, bias=True),
        matrix("up", 8 * width, width, bias=True),
        matrix("down", width, 4 * width, bias=True),
        window("leave", width, width, 1, bias=True),
    )


def _side(dims: dict[str, int], name: str) -> int:
    """Return the side of the image in a block, by its level; what doubles it works on the larger one."""
    level = len(LEVELS) - 1 if name.startswith("middle") else int(name[4:5] or 0) if name.startswith("down") else 0
    if name.startswith("up"):
        level = int(name[2])
    if name.endswith("double"):
        level -= 1
        return dims["image"] >> (level + 1)
    return dims["image"] >> level
