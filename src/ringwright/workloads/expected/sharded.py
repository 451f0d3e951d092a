"""Fully sharded training with PyTorch's ``fully_shard``, one unit a block and one for what is left (the root).

How it behaves (torch 2.13, read in ``distributed/fsdp/_fully_shard``): a unit's parameters are gathered in one
all-gather before its forward pass, given back after it, gathered again before its backward pass, and their gradients
scattered in one reduce-scatter. The root is not given back, so it is gathered once a step. Each parameter is cut along its
first dimension into equal parts of ceil(length / ranks) rows; what does not fill them is sent as padding. Frozen parameters
are gathered like the others, but a unit through which no gradient flows is not gathered again, with one exception: when the
backward pass of a unit begins, the unit before it is already fetched. So when only the root is trained the last block is
gathered a second time, for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ringwright.workloads.expected.row import DTYPE_BYTES, ExpectedRow, gathered, merged, scattered
from ringwright.workloads.parts import Anatomy, ModelBlock, Shape


def padded(shapes: Iterable[Shape], ranks: int) -> int:
    """Return the elements of these parameters with the padding of each."""
    return sum(-(-shape[0] // ranks) * ranks * math.prod(shape[1:]) for shape in shapes)


def units(anatomy: Anatomy) -> list[Sequence[ModelBlock]]:
    """Return the root, then each block by itself."""
    root = [block for block in anatomy.blocks if block.unit == "root"]
    return [root, *([block] for block in anatomy.blocks if block.unit == "block")]


def rows(anatomy: Anatomy, ranks: int, mode: str, dtype: str) -> list[ExpectedRow]:
    """Return what one rank of ``ranks`` issues, in training or per pass of inference."""
    width, expected = DTYPE_BYTES[dtype], []
    split = units(anatomy)
    for at, unit in enumerate(split):
        layers = [layer for block in unit for layer in block.layers]
        size = width * padded((shape for layer in layers for shape in layer.shapes), ranks)
        trained = width * padded((shape for layer in layers for shape in layer.ready()), ranks)
        if mode == "inference":
            expected += [
                gathered(when, when, "dp", size, ranks) for when in (("prefill", "decode") if at else ("prefill",))
            ]
            continue
        expected.append(gathered("each", "forward", "dp", size, ranks))
        if at and (mode != "head" or at == len(split) - 1):
            expected.append(gathered("each", "backward", "dp", size, ranks))
        if trained:
            expected.append(scattered("each", "backward", "dp", trained))
    return merged(expected)
