"""A chain of layers from a model card, or from measured times: what a data-parallel step of the model is cut down to.

Times of a card are in proportion to operations and scaled to the step that was measured. That understates the first layers of
convolutional networks, which are bound by memory; measured times do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ringwright.ground.errors import UsageError
from ringwright.model.workload import Edge, Workload
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.flops import forward
from ringwright.workloads.layer_work import LayerWork
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.models import usual_sequence
from ringwright.workloads.parts import Layer

EACH = ("layer", "tensor")
FORWARD_SHARE = 1 / 3  # the backward pass has two products for each one of forward


def layerwise(
    card: ModelCard,
    iteration_s: float,
    ranks: int = 2,
    *,
    op: str = "all-reduce",
    each: str = "layer",
    forward_share: float = FORWARD_SHARE,
    width_bytes: int = 4,
    branches: bool = False,
) -> Workload:
    """Return a step of ``iteration_s`` seconds of compute whose layers take time in proportion to their operations.

    ``each``: a "layer" is one payload (its weights and biases together), or each "tensor" is one, ready in the order in which
    autograd finishes them. A norm is a layer of its own, without time. A matrix that is used at both ends of the model is one
    payload, ready at the end of backward, and both uses wait for it. With ``branches``, forward waits along the branches of the
    model's blocks, not in the order listed; backward keeps its order. UsageError for a time or share that cannot be.
    """
    if each not in EACH or not 0 < forward_share < 1 or iteration_s < 0:
        raise UsageError(
            f"no step of {iteration_s:g} s, {forward_share:g} of it forward, {each} by {each}",
            remedy="a time, a share between 0 and 1, and layer or tensor",
        )
    works = list(_works(card))
    total = sum(work.flops for _, work, _ in works)
    links: list[ChainLayer] = []
    spans: dict[str, tuple[str, str]] = {}  # of a layer's links: the first and the last
    for label, work, layer in works:
        seconds = iteration_s * work.flops / total
        one = ChainLayer(seconds * forward_share, seconds * (1 - forward_share), 0, name=label)
        mine = _links(one, layer, each, width_bytes)
        links += mine
        spans[label] = (mine[0].name, mine[-1].name)
    said = f"time of layers in proportion to operations, {forward_share:.3g} of {iteration_s:g} s forward"
    made = chain(card.size, links, ranks, op=op, assumptions=(said,))
    if branches:
        made = _branching(made, spans, card.branches())
    return _tied(made, [label for label, _, layer in works if layer is not None and layer.tied], works[-1][0])


def measured(
    name: str,
    gaps_s: Sequence[float],
    sizes_bytes: Sequence[int],
    forward_s: float,
    ranks: int = 2,
    *,
    op: str = "all-reduce",
) -> Workload:
    """Return a step with gradients that become ready ``gaps_s`` after each other, the last layer's first.

    Forward is shared out as backward is. UsageError where the two lists differ in length.
    """
    if len(gaps_s) != len(sizes_bytes) or not gaps_s:
        raise UsageError(f"'{name}' has {len(gaps_s)} times and {len(sizes_bytes)} sizes")
    whole = math.fsum(gaps_s) or 1.0
    last = len(gaps_s) - 1
    links = [
        ChainLayer(forward_s * gap / whole, gap, size, name=f"tensor{last - at}")
        for at, (gap, size) in enumerate(zip(gaps_s, sizes_bytes, strict=True))
    ]
    said = "backward as measured, forward shared out in proportion to it"
    return chain(name, links[::-1], ranks, op=op, assumptions=(said,))


def _works(card: ModelCard) -> Iterator[tuple[str, LayerWork, Layer | None]]:
    """Yield each layer in order of use: its label, its forward work, and its parameters if it has any of its own."""
    layers = {block.name: iter(block.in_use()) for block in card.anatomy().blocks}
    for block, works in forward(card, 1, usual_sequence(card)).items():
        for work in works:
            own = block in layers and work.kind not in ("attention", "interaction")
            yield f"{block}.{work.name}", work, next(layers[block]) if own else None


def _links(one: ChainLayer, layer: Layer | None, each: str, width_bytes: int) -> list[ChainLayer]:
    shapes = layer.ready()[::-1] if layer is not None else ()
    if not shapes:
        return [one]
    elements = [math.prod(shape) for shape in shapes]
    matrix = layer.shapes[0] if layer is not None and len(layer.shapes[0]) == 2 else None
    factors = (matrix[0], matrix[1]) if matrix else None
    if each == "layer" or len(shapes) == 1:
        return [
            ChainLayer(
                one.forward_s, one.backward_s, sum(elements) * width_bytes, sum(elements), factors, name=one.name
            )
        ]
    # The tensor whose gradient is ready first carries the layer's time: all of them are ready when backward of the layer is.
    times = [(0.0, 0.0)] * (len(shapes) - 1) + [(one.forward_s, one.backward_s)]
    return [
        ChainLayer(*time, number * width_bytes, number, factors if shape == matrix else None, name=f"{one.name}.{at}")
        for at, (time, number, shape) in enumerate(zip(times, elements, shapes, strict=True))
    ]


def _branching(made: Workload, spans: dict[str, tuple[str, str]], starts: set[str]) -> Workload:
    """Let what begins a branch wait for all ends of the block before, and the last block for those of its predecessor.

    The auxiliary head of an Inception is a branch that ends by itself: backward waits for it.
    """
    firsts = {f"F.{first}" for first, _ in spans.values()}
    edges = [edge for edge in made.edges if not (edge.dst in firsts and edge.src.startswith("F."))]
    ends: list[str] = []  # of the blocks before
    at: list[str] = []  # of this one
    block = ""
    for label, (first, last) in spans.items():
        name = label.rpartition(".")[0]
        if block not in (name, "aux"):
            ends = at
        begins = name != block or label in starts
        edges += [Edge(f"F.{each}", f"F.{first}") for each in (ends if begins else at[-1:])]
        if name == "aux" and begins:
            at = []
        at = [*(at if name == block else []), last] if begins else [*at[:-1], last]
        block = name
    loose = [last for label, (_, last) in spans.items() if label.startswith("aux.")][-1:]
    edges += [Edge(f"F.{each}", f"B.{at[-1]}") for each in loose]
    return replace(made, edges=tuple(edges))


def _tied(made: Workload, tied: list[str], last: str) -> Workload:
    """Make the matrix of the outputs wait for the embedding's update, where the two are one."""
    more = tuple(Edge(f"U.{label}", f"F.{last}", 1) for label in tied)
    return replace(made, edges=made.edges + more) if more else made
