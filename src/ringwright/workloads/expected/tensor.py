"""Tensor parallel training and inference with PyTorch's own plans (column-wise, then row-wise), activations not cut.

Forward: a sum after the embedding and after every row-wise matrix, and the logits are gathered. Backward: every column-wise
matrix adds up the gradient of its own input, so queries, keys and values issue three sums where one would do (Megatron-LM
needs one for all three, and one for gate and up). Routed experts whose width is cut add up their output forwards, and
backwards the gradients of their input and of the routing weights (float32). In latent attention the part of the key that all
heads share has its own sum backwards. A gradient that nobody wants is not summed: with only the head trained, none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ringwright.ground.errors import UsageError
from ringwright.workloads.expected.row import DTYPE_BYTES, ExpectedRow, gathered, merged, whole
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parts import Anatomy, Layer, ModelBlock

MUST_DIVIDE = {
    "llama": ("heads", "kv_heads", "intermediate", "vocabulary"),
    "mixtral": ("heads", "kv_heads", "intermediate", "vocabulary"),
    "deepseek-v3": ("heads", "intermediate", "expert_intermediate", "vocabulary"),
    "bert": ("heads", "intermediate"),
}


def check(card: ModelCard, ranks: int) -> None:
    """Raise UsageError where the dimensions cannot be cut evenly."""
    for name in MUST_DIVIDE[card.family]:
        if card.dims[name] % ranks:
            raise UsageError(
                f"{ranks} ranks cannot share {card.dims[name]} {name} of '{card.family}' evenly",
                remedy=f"a tp that divides {', '.join(str(card.dims[each]) for each in MUST_DIVIDE[card.family])}",
            )


def rows(card: ModelCard, ranks: int, mode: str, batch: int, sequence: int, dtype: str) -> list[ExpectedRow]:
    """Return what one rank of ``ranks`` issues: each iteration, or for the prompt and each decoded token."""
    check(card, ranks)
    if mode == "inference":
        prefill = forward(card, ranks, batch * sequence, batch, dtype, "prefill")
        return [*prefill, *forward(card, ranks, batch, batch, dtype, "decode")]
    tokens = batch * sequence
    expected = forward(card, ranks, tokens, tokens, dtype, "")
    return merged([*expected, *backward(card, tokens, dtype)]) if mode == "training" else expected


def cut(anatomy: Anatomy, ranks: int) -> Anatomy:
    """Return the anatomy of what one rank holds."""

    def part(layer: Layer) -> Layer:
        if not layer.cut:
            return layer
        first, *rest = layer.shapes
        at = layer.cut_at
        shape = (*first[:at], first[at] // ranks, *first[at + 1 :])
        others = [(*each[:-1], each[-1] // ranks) if layer.cut == "columns" else each for each in rest]
        return replace(layer, shapes=(shape, *others))

    blocks = (replace(block, layers=tuple(part(layer) for layer in block.layers)) for block in anatomy.blocks)
    return replace(anatomy, blocks=tuple(blocks))


def forward(card: ModelCard, ranks: int, tokens: int, answered: int, dtype: str, turn: str) -> list[ExpectedRow]:
    """Return one forward pass over ``tokens`` tokens with logits for ``answered`` of them."""
    dims, width, when, phase = card.dims, DTYPE_BYTES[dtype], turn or "each", turn or "forward"
    sums = [layer for block in card.anatomy().blocks for layer in block.layers if layer.cut == "rows"]
    count = len(sums) + (0 if card.family == "bert" else 1)
    expected = [whole(when, phase, "tp", "all-reduce", tokens * dims["hidden"] * width, count)]
    if card.family != "bert":
        expected.append(gathered(when, phase, "tp", answered * dims["vocabulary"] * width, ranks))
    return expected


def backward(card: ModelCard, tokens: int, dtype: str) -> Iterator[ExpectedRow]:
    """Yield one backward pass over ``tokens`` tokens."""
    width = DTYPE_BYTES[dtype]
    for block in card.anatomy().blocks:
        for layer in block.layers:
            if layer.cut == "columns":
                yield whole("each", "backward", "tp", "all-reduce", tokens * inputs(layer) * width)
        yield from _of_block(card.dims, block, tokens, width)


def inputs(layer: Layer) -> int:
    """Return how wide the input of a matrix is."""
    return layer.shapes[0][-1]


def _of_block(dims: Mapping[str, int], block: ModelBlock, tokens: int, width: int) -> Iterator[ExpectedRow]:
    """Yield what belongs to no matrix: the routing weights, the shared key."""
    if block.moe:
        yield whole("each", "backward", "tp", "all-reduce", tokens * dims["active"] * 4)
    if block.unit == "block" and "rope" in dims:
        yield whole("each", "backward", "tp", "all-reduce", tokens * dims["rope"] * width)
