"""Fine-tuning, as a change of the anatomy: what is frozen, and what is trained beside it."""

from __future__ import annotations

from dataclasses import replace

from ringwright.ground.errors import UsageError
from ringwright.workloads.model_cards import IMAGES, ModelCard
from ringwright.workloads.parts import Anatomy, Layer, ModelBlock

# The attention's matrices that get two thin ones beside them: queries and values, or what holds them.
BESIDE = {
    "llama": ("q", "v"),
    "mixtral": ("q", "v"),
    "bert": ("q", "v"),
    "gpt2": ("qkv",),
    "deepseek-v3": ("q_up", "kv_up"),
}
HEAD = {"gpt2": ("norm",), "bert": ("transform", "norm")}  # for the matrix itself is the embedding's


def tuned(card: ModelCard, mode: str, rank: int) -> Anatomy:
    """Return the anatomy as ``mode`` trains it: "training", "head" (the head only), "lora" (thin matrices of ``rank``)."""
    whole = card.anatomy()
    if mode in ("training", "inference"):
        return whole
    if mode == "lora" and card.family in IMAGES:
        raise UsageError(f"'lora' is for attention, which '{card.family}' has not", remedy="--mode training, or head")
    blocks = tuple(_block(card, block, mode, rank) for block in whole.blocks)
    return replace(whole, blocks=blocks)


def _block(card: ModelCard, block: ModelBlock, mode: str, rank: int) -> ModelBlock:
    layers = []
    for layer in block.layers:
        kept = replace(layer, frozen=len(layer.shapes))
        if mode == "head" and block.name == "head" and layer.name in HEAD.get(card.family, ("head",)):
            kept = layer
        if mode == "lora" and block.unit == "block" and layer.name in BESIDE[card.family]:
            kept = _beside(card, layer, rank)
        layers.append(kept)
    return replace(block, layers=tuple(layers))


def _beside(card: ModelCard, layer: Layer, rank: int) -> Layer:
    """Return the layer with its two thin matrices, which are registered after it."""
    first, second = layer.shapes[0]
    inputs, outputs = (first, second) if card.family == "gpt2" else (second, first)
    return replace(
        layer, shapes=(*layer.shapes, (rank, inputs), (outputs, rank)), frozen=len(layer.shapes), bias_first=True
    )
