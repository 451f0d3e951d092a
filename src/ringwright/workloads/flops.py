"""What one rank computes in a forward pass, layer by layer, as matrix products that a roofline can time.

A layer that holds a matrix is one product, a convolution the product that an implicit matrix makes of it; attention has its own
figure, halved where tokens see only those before them. Tensor parallelism cuts outputs or inputs of a matrix, context
parallelism the tokens, expert parallelism the experts; routed tokens are taken to come out even. Two operations a multiply-add.

Source: Megatron-LM's accounting (arithmetic of matrix products and attention; norms, activations and routers are not counted).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ringwright.workloads.layer_work import ALONE, Gemm, LayerWork, Load
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parallel import Parallel
from ringwright.workloads.parts import Layer, ModelBlock
from ringwright.workloads.special_layers import ONE_A_SEQUENCE, PASSES, attended, is_patches, passed, patches
from ringwright.workloads.tables import CUT, interaction, local, looked_up

MODES = ("training", "prefill", "decode")
BOTH_WAYS = ("bert", "vit", "diffusion")  # families where every token sees every other one


def forward(
    card: ModelCard,
    sequences: int,
    sequence: int = 1,
    parallel: Parallel = ALONE,
    *,
    mode: str = "training",
    width_bytes: int = 2,
) -> dict[str, tuple[LayerWork, ...]]:
    """Return the work of each block of the model, in order of use, on a rank that holds it.

    ``sequences`` is the micro-batch (images for a model of images), ``sequence`` the tokens of each; in mode "decode" one token
    of each sequence is worked on, and ``sequence`` is what lies in the cache. All blocks are given, whatever the stages: take
    those of a stage from ``parallel.chunks``.
    """
    load = Load(sequences, sequence, parallel, mode, width_bytes)
    anatomy = card.anatomy()
    sides = iter(card.sides())
    works = {block.name: tuple(_block(card, at, block, load, sides)) for at, block in enumerate(anatomy.blocks)}
    tied = [layer for layer in anatomy.layers() if layer.tied]
    if tied:
        rows = load.tokens if mode == "training" else load.sequences
        works["logits"] = (_matrix(tied[0], load, rows, "logits", held=False),)
    return works


def flops_per_token(card: ModelCard, sequence: int | None = None, *, mtp: int | None = None) -> float:
    """Return operations of forward and backward pass for one token of sequences of ``sequence``; for one image of CNNs.

    No recomputation. ``mtp`` counts modules that predict one more token each; the default is 1 for DeepSeek-V3, whose published
    figures hold it, and 0 elsewhere. An encoder-decoder is counted for a pair of one source and one target token.
    """
    from ringwright.workloads.models import usual_sequence

    length = sequence or usual_sequence(card)
    if card.takes_samples:
        return 3.0 * sum(work.flops for works in forward(card, 1).values() for work in works)
    anatomy = card.anatomy()
    modules = default_mtp(card) if mtp is None else mtp
    blocks = block_flops(card, length)
    tied = sum(2 * math.prod(layer.shapes[0]) for layer in anatomy.layers() if layer.tied)
    total = sum(blocks) + tied
    if modules:
        # One more block, a projection of two hidden states into one, and the logits once more.
        total += modules * (blocks[-2] + 4 * card.dims["hidden"] ** 2 + blocks[-1] + tied)
    return 3.0 * total


def block_flops(model: ModelCard, sequence: int | None = None) -> list[float]:
    """Return the operations of each block's forward pass for one token of sequences of ``sequence`` (None: the usual length)."""
    from ringwright.workloads.models import usual_sequence

    length = sequence or usual_sequence(model)
    return [_per_token(model, at, block, length) for at, block in enumerate(model.anatomy().blocks)]


def default_mtp(card: ModelCard) -> int:
    """Return how many modules that predict further tokens are counted."""
    return int(card.family == "deepseek-v3")


def attention_widths(dims: dict[str, int]) -> tuple[int, int, int]:
    """Return, over all heads, the width of queries, that of values, and that of keys and values as they are exchanged."""
    heads = dims["heads"]
    if "nope" in dims:
        queries, values = heads * (dims["nope"] + dims["rope"]), heads * dims["value"]
        return queries, values, queries + values
    head = dims.get("head", dims["hidden"] // heads)
    return heads * head, heads * head, 2 * dims.get("kv_heads", heads) * head


def padded_vocabulary(words: int, tp: int) -> int:
    """Return the words that ``tp`` ranks share: filled up to a multiple of 128 a rank where they do not come out even."""
    return words if words % tp == 0 else -(-words // (128 * tp)) * 128 * tp


def _block(
    card: ModelCard, at: int, block: ModelBlock, load: Load, sides: Iterator[tuple[int, int]]
) -> Iterator[LayerWork]:
    positions = load.own_tokens  # of what a norm works on: tokens, or the pixels of the convolution before it
    for layer in local(block.in_use(), load.parallel.dp):
        if layer.name == "top1":
            yield interaction(card, load)
        if layer.keys:
            yield attended(layer, card.dims["heads"], load)
        elif layer.name in ("o", "cross_o"):
            yield _attention(card, at, block, layer.name, load)
        if layer.expert:
            yield _experts(card, layer, load)
        elif (work := _apart(layer, load)) is not None:
            yield work
        elif len(layer.shapes[0]) == 4:
            before, after = next(sides)
            positions = load.sequences * after * after
            yield _convolution(layer, before, after, load)
        elif card.takes_samples and len(layer.shapes[0]) == 2:
            yield _matrix(layer, load, load.sequences * layer.rows, "matrix")
        elif len(layer.shapes[0]) == 1:
            yield _small(layer, positions, load)
        elif _is_lookup(layer):
            yield _lookup(layer, load)
        else:
            yield _matrix(layer, load, _rows(layer, load), _kind(layer))


def _apart(layer: Layer, load: Load) -> LayerWork | None:
    """Return the work of a layer that is of a kind of its own; None for all others."""
    if layer.name in PASSES:
        return passed(layer, load)
    if layer.cut == CUT:
        return looked_up(layer, load)
    return patches(layer, load) if is_patches(layer) else None


def _kind(layer: Layer) -> str:
    return {"router": "router", "head": "logits"}.get(layer.name, "matrix")


def _is_lookup(layer: Layer) -> bool:
    return layer.cut == "vocabulary" or layer.name in ("places", "types", "labels")


def _rows(layer: Layer, load: Load) -> int:
    """Return for how many tokens a matrix is used: for one of each sequence where only one is asked about."""
    if layer.name in ONE_A_SEQUENCE or (layer.name == "head" and load.mode != "training"):
        return load.sequences
    return load.own_tokens if layer.name == "router" else load.tokens


def _matrix(layer: Layer, load: Load, rows: int, kind: str, *, held: bool = True) -> LayerWork:
    first, second = layer.shapes[0]
    outputs, inputs = (second, first) if layer.inputs_first else (first, second)
    tp = load.parallel.tp
    if layer.cut == "vocabulary" or layer.name == "head":
        outputs = padded_vocabulary(outputs, tp)
    gemm = Gemm(
        rows,
        outputs // tp if layer.cut in ("columns", "vocabulary") else outputs,
        inputs // tp if layer.cut == "rows" else inputs,
    )
    biases = sum(math.prod(shape) for shape in layer.shapes[1:]) // (tp if layer.cut == "columns" else 1)
    moved = load.width_bytes * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
    return LayerWork(layer.name, kind, (gemm,), 0, moved, (gemm.n * gemm.k + biases) * held, layer.cut)


def _experts(card: ModelCard, layer: Layer, load: Load) -> LayerWork:
    number, outputs, inputs = layer.shapes[0]
    local, etp = number // load.parallel.ep, load.parallel.etp
    outputs, inputs = (outputs // etp, inputs) if layer.cut == "columns" else (outputs, inputs // etp)
    biases = sum(math.prod(shape) for shape in layer.shapes[1:]) // (etp if layer.cut == "columns" else 1)
    rows = (load.tokens if etp > 1 else load.own_tokens) * card.dims["active"]
    used = min(local, rows)  # a few tokens cannot reach all experts
    gemm = Gemm(-(-rows // used), outputs, inputs, used)
    moved = load.width_bytes * used * (gemm.m * inputs + inputs * outputs + gemm.m * outputs)
    held = local * inputs * outputs + biases // load.parallel.ep
    return LayerWork(layer.name, "experts", (gemm,), 0, moved, held, layer.cut, expert=True)


def _convolution(layer: Layer, before: int, after: int, load: Load) -> LayerWork:
    outputs, inputs, height, width = layer.shapes[0]
    gemm = Gemm(load.sequences * after * after, outputs, inputs * height * width)
    pixels = load.sequences * (before * before * inputs + after * after * outputs)
    moved = load.width_bytes * (pixels + outputs * gemm.k)
    return LayerWork(layer.name, "convolution", (gemm,), 0, moved, layer.elements)


def _small(layer: Layer, positions: int, load: Load) -> LayerWork:
    """Return what is read and written around a norm: each element once in and once out."""
    elements = layer.elements // (load.parallel.tp if layer.cut == "columns" else 1)
    moved = 2 * load.width_bytes * positions * layer.shapes[0][0] if "norm" in layer.name else 0
    return LayerWork(layer.name, "norm", (), 0, moved, elements, layer.cut)


def _lookup(layer: Layer, load: Load) -> LayerWork:
    *_, words, hidden = layer.shapes[0]
    held = hidden * padded_vocabulary(words, load.parallel.tp) // load.parallel.tp if layer.cut else layer.elements
    rows = load.sequences if layer.name == "labels" else load.tokens
    return LayerWork(layer.name, "lookup", (), 0, 2 * load.width_bytes * rows * hidden, held, layer.cut)


def _attention(card: ModelCard, at: int, block: ModelBlock, before: str, load: Load) -> LayerWork:
    queries, values, exchanged = attention_widths(card.dims)
    tp, cached = load.parallel.tp, load.mode == "decode"
    seen = load.sequence if cached else _seen(card, at, block, before, load.sequence)
    flops = 2 * load.tokens * seen * (queries + values) // tp
    there = load.sequences * load.sequence if cached else load.sequences * load.sequence // load.parallel.cp
    moved = load.width_bytes * (load.tokens * (queries + values) + there * exchanged) // tp
    lines = 1 if cached else load.sequence // load.parallel.cp
    heads = card.dims["heads"]
    scores = Gemm(lines, load.sequence, (queries + values) // (2 * heads), load.sequences * heads // tp)
    return LayerWork(f"{before[:-1]}attention", "attention", (), round(flops), moved, scores=scores)


def _seen(card: ModelCard, at: int, block: ModelBlock, before: str, sequence: int) -> float:
    """Return how many tokens one token sees on average."""
    everything = card.family in BOTH_WAYS or block.name.startswith("encoder") or before == "cross_o"
    window = card.dims.get("window", 0)
    limit = min(sequence, window) if window and at % 2 else sequence
    return float(limit) if everything else limit / 2


def _per_token(card: ModelCard, at: int, block: ModelBlock, sequence: int) -> float:
    """Return the operations of a block's forward pass for a token, as published figures count them: without the router."""
    total = 0.0
    for layer in block.in_use():
        if layer.name in ("o", "cross_o"):
            queries, values, _ = attention_widths(card.dims)
            total += 2 * _seen(card, at, block, layer.name, sequence) * (queries + values)
        if layer.expert:
            total += 2 * math.prod(layer.shapes[0]) * card.dims["active"] / card.dims["experts"]
        elif is_patches(layer) or (len(layer.shapes[0]) == 2 and layer.name not in (*PASSES, "router")):
            once = layer.name in ONE_A_SEQUENCE
            total += 0 if _is_lookup(layer) else 2 * math.prod(layer.shapes[0]) / (sequence if once else 1)
    return total
