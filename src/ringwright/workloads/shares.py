"""What one rank holds: the blocks of its stage, and its part of each layer's parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ringwright.ground.errors import UsageError
from ringwright.workloads.flops import padded_vocabulary
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parallel import Parallel
from ringwright.workloads.parts import Layer, ModelBlock, Shape
from ringwright.workloads.stage_layers import chunks
from ringwright.workloads.tables import local


def middle(parallel: Parallel) -> int:
    """Return the stage that stands for most: the middle one, which has neither embedding nor loss where there are three."""
    return (parallel.pp - 1) // 2


def held(card: ModelCard, parallel: Parallel, stage: int) -> list[ModelBlock]:
    """Return the blocks of a stage, uncut; the last one has a copy of a matrix that the first one shares with it.

    Raises UsageError for a stage that does not exist.
    """
    if not 0 <= stage < parallel.pp:
        raise UsageError(f"pp{parallel.pp} has no stage {stage}", remedy=f"--stage 0 to {parallel.pp - 1}")
    blocks = card.anatomy().blocks
    inner = [at for at, block in enumerate(blocks) if block.unit == "block"]
    wanted = [inner[at] for span in chunks(card, parallel)[stage] for at in span]
    kept = [blocks[at] for at in wanted]
    if stage == 0:
        kept = [*blocks[: inner[0]], *kept]
    if stage == parallel.last:
        kept += blocks[inner[-1] + 1 :]
        if parallel.last and (tied := tied_matrix(card)):
            kept.append(ModelBlock("logits", (tied,), unit="root"))
    return kept


def tied_matrix(card: ModelCard) -> Layer | None:
    """Return the layer whose matrix is used for the inputs and for the outputs, if there is one."""
    return next((layer for layer in card.anatomy().layers() if layer.tied), None)


def shares(layer: Layer, parallel: Parallel) -> tuple[Shape, ...]:
    """Return the shapes of a rank's part of a layer."""
    tp, (first, *rest) = parallel.tp, layer.shapes
    if layer.expert and parallel.ep > 1:
        return tuple((shape[0] // parallel.ep, *shape[1:]) for shape in layer.shapes)
    if tp == 1 or not layer.cut:
        return layer.shapes
    if layer.cut == "vocabulary" or layer.name == "head":
        return ((padded_vocabulary(first[0], tp) // tp, *first[1:]), *rest)
    at = layer.cut_at
    others = ((*shape[:-1], shape[-1] // tp) if layer.cut == "columns" else shape for shape in rest)
    return ((*first[:at], first[at] // tp, *first[at + 1 :]), *others)


def cut(block: ModelBlock, parallel: Parallel) -> ModelBlock:
    """Return a rank's part of a block."""
    mine = local(block.layers, parallel.dp)
    return replace(block, layers=tuple(replace(layer, shapes=shares(layer, parallel)) for layer in mine))


def elements(blocks: Iterable[ModelBlock], *, expert: bool | None = None) -> int:
    """Return the elements of the routed experts in these blocks, of everything else (False), or of both (None)."""
    return sum(layer.elements for block in blocks for layer in block.layers if expert in (None, layer.expert))


def uncut_elements(blocks: Iterable[ModelBlock]) -> int:
    """Return the elements that every rank of a tensor parallel group has whole, experts apart."""
    layers = [layer for block in blocks for layer in block.layers if not layer.expert]
    whole = sum(layer.elements for layer in layers if not layer.cut)
    return whole + sum(math.prod(shape) for layer in layers if layer.cut == "rows" for shape in layer.shapes[1:])
