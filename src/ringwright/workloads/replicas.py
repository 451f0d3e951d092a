"""What ranks that hold the same parameters issue for them: sums of gradients in buckets, or parts gathered and scattered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ringwright.workloads.expected.data import FIRST_BYTES, LATER_BYTES, buckets
from ringwright.workloads.expected.row import ExpectedRow, gathered, scattered, whole
from ringwright.workloads.expected.sharded import padded
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parallel import Parallel
from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, Shape
from ringwright.workloads.shares import elements
from ringwright.workloads.step import StepSpec
from ringwright.workloads.tables import without

BUCKET_PARAMETERS, BUCKET_PARAMETERS_A_RANK = 40_000_000, 1_000_000


def gradients(card: ModelCard, blocks: list[ModelBlock], step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield the sum of the gradients over all replicas, in buckets; with zero1 scattered, and the parameters gathered."""
    parallel = step.parallel
    if has_ddp(card, parallel):
        for shapes in _wrapped(card) if parallel.replicas > 1 else ():
            made = buckets([(step.gradient_bytes, math.prod(shape)) for shape in shapes], [FIRST_BYTES, LATER_BYTES])
            yield from (whole("each", "backward", "dp", "all-reduce", size) for size in made)
        return
    for role, ranks, expert in _groups(parallel):
        number = elements(blocks, expert=expert)
        limit = max(BUCKET_PARAMETERS, BUCKET_PARAMETERS_A_RANK * ranks)
        for size, count in ((limit, number // limit), (number % limit, 1)):
            if ranks == 1 or not size or not count:
                continue
            if parallel.zero:
                yield scattered("each", "backward", role, step.gradient_bytes * size, count)
                yield gathered("each", "optimiser", role, step.width_bytes * size, ranks, count)
            else:
                yield whole("each", "backward", role, "all-reduce", step.gradient_bytes * size, count)


def has_ddp(model: ModelCard, parallel: Parallel) -> bool:
    """Whether gradients travel in the buckets of DistributedDataParallel: where models of images are cut in no other way."""
    whole = model.takes_samples or (model.takes_images and parallel.world == parallel.dp)
    return whole and not parallel.zero


def _wrapped(model: ModelCard) -> list[list[Shape]]:
    """Return the shapes of each DistributedDataParallel as their gradients become ready: one, or, beside tables, one a part."""
    anatomy = model.anatomy()
    if not model.has_tables:
        return [anatomy.ready()]
    return [Anatomy((block,)).ready() for block in without(anatomy.blocks)[::-1]]


def _groups(parallel: Parallel) -> list[tuple[str, int, bool | None]]:
    """Return the groups that share gradients: their role, their ranks, and whose: experts, others, or (None) both."""
    if parallel.ep == 1:
        return [("dp", parallel.replicas, None)]
    return [("dp", parallel.replicas, False), ("edp", parallel.edp, True)]


def _rows_first(layers: Iterable[Layer], ranks: int, *, expert: bool | None) -> Iterator[Shape]:
    """Yield the shapes of a unit as they are sharded: stacked experts that are fewer than the ranks, along their rows."""
    for layer in layers:
        if expert in (None, layer.expert):
            for shape in layer.shapes:
                yield (shape[0] * shape[1], *shape[2:]) if layer.expert and shape[0] < ranks else shape


def sharded(blocks: list[ModelBlock], step: StepSpec) -> Iterator[ExpectedRow]:
    """Yield what ``fully_shard`` does each micro-batch: a unit is gathered forwards and backwards, its gradients scattered.

    What does not repeat is one unit, kept from its forward pass to its backward pass.
    """
    parallel = step.parallel
    root = [layer for block in blocks if block.unit == "root" for layer in block.layers]
    units = [("root", root), *((block.name, list(block.layers)) for block in blocks if block.unit == "block")]
    for at, (name, unit) in enumerate(units):
        for role, ranks, expert in _groups(parallel):
            number = padded(_rows_first(unit, ranks, expert=expert), ranks)
            if ranks == 1 or not number or (not at and step.mode == "decode"):
                continue
            phases = [step.forwards[0], *(["backward"] if step.trains and at else [])]
            for phase in phases:
                row = gathered("each", phase, role, step.width_bytes * number, ranks, step.micro_batches)
                yield replace(row, layer=name)
            if step.trains:
                row = scattered("each", "backward", role, step.gradient_bytes * number, step.micro_batches)
                yield replace(row, layer=name)
