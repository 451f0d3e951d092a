"""Which layers are on which pipeline stage: as listed by hand, even, as the model was published, or balanced."""

from __future__ import annotations

import math
import re

from ringwright.ground.errors import UsageError
from ringwright.workloads.flops import block_flops
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parallel import Parallel

# Models made with fewer layers in the first and last stage: embedding and loss count as so many layers, one of them in front.
ENDS = {"llama3-405b": 2, "qwen3-235b-a22b": 2, "deepseek-v3": 3}


def listed(text: str) -> tuple[int, ...]:
    """Return ``7,8,8`` (or ``3*8,7``: three of 8) as layers of each chunk along the model; UsageError for anything else."""
    counts: list[int] = []
    for word in re.split(r"[,\s]+", text.strip()):
        match = re.fullmatch(r"(?:(\d{1,4})\*)?(\d{1,4})", word)
        if not match:
            raise UsageError(
                f"'{word}' is no number of layers", where=text, remedy="--stages 7,8,8 or --stages 7,14*8,7"
            )
        counts += [int(match[2])] * int(match[1] or 1)
    return tuple(counts)


def chunks(model: ModelCard, parallel: Parallel) -> list[list[range]]:
    """Return which blocks that repeat (from 0) are in each chunk of each stage: ``[stage][chunk]`` is a range.

    Chunk ``v`` of stage ``k`` is number ``v * pp + k`` along the model, if the pipeline is not folded. Raises UsageError for
    more chunks than layers, and where numbers listed by hand are not those of the model.
    """
    counts, _ = sizes(model, parallel)
    starts = [sum(counts[:at]) for at in range(len(counts))]
    spans = [range(start, start + count) for start, count in zip(starts, counts, strict=True)]
    shape = parallel.shape
    return [[spans[shape.stage(stage, chunk)] for chunk in range(parallel.vp)] for stage in range(parallel.pp)]


def sizes(model: ModelCard, parallel: Parallel) -> tuple[list[int], str]:
    """Return the layers of each chunk along the model, and how they were shared out where they are not even."""
    blocks = model.anatomy().blocks
    layers, number = sum(block.unit == "block" for block in blocks), parallel.pp * parallel.vp
    if parallel.stages:
        return _by_hand(model, parallel, layers), "layers of each stage as listed"
    if usual := as_published(model, parallel):
        alike = len(set(usual)) == 1
        return (
            usual,
            "" if alike else "the first and the last stage have fewer layers, for embedding and loss count as layers",
        )
    if number > max(layers, 1):
        raise UsageError(
            f"{layers} layers of {model.size} do not fill pp{parallel.pp} x vp{parallel.vp}: a chunk would have none",
            remedy=f"pp{max(1, layers // parallel.vp)} or less{f' with vp{parallel.vp}' * (parallel.vp > 1)}",
        )
    counts = _balanced(_costs(model), number)
    return counts, (
        f"stages of {', '.join(map(str, counts))} layers: the longest takes the least time (loss counted), and the first ones, "
        "which keep activations of more micro-batches, have the fewest layers that allow it (--stages lists them by hand)"
    )


def as_published(model: ModelCard, parallel: Parallel) -> list[int]:
    """Return the layers of each chunk where they come out even, or as the model was made; nothing elsewhere."""
    layers, number = sum(block.unit == "block" for block in model.anatomy().blocks), parallel.pp * parallel.vp
    if layers % number == 0 and layers:
        return [layers // number] * number
    ends = ENDS.get(model.size, 0)
    if not ends or (layers + ends) % number or (layers + ends) // number < ends:
        return []
    counts = [(layers + ends) // number] * number
    counts[0] -= 1
    counts[-1] -= ends - 1
    return counts


def _by_hand(model: ModelCard, parallel: Parallel, layers: int) -> list[int]:
    counts, number = [*parallel.stages], parallel.pp * parallel.vp
    told = ",".join(map(str, counts))
    if len(counts) != number:
        raise UsageError(
            f"{len(counts)} numbers of layers for pp{parallel.pp} x vp{parallel.vp}",
            where=told,
            remedy=f"{number} numbers",
        )
    if sum(counts) != layers or not all(counts):
        raise UsageError(
            f"the stages hold {sum(counts)} layers, {model.size} has {layers}"
            if all(counts)
            else "a stage without layers is no stage",
            where=told,
            remedy=f"{number} numbers of 1 or more that add up to {layers}",
        )
    return counts


def _costs(model: ModelCard) -> list[float]:
    """Return the operations of a token in each block that repeats; what follows the last one counts with it."""
    costs, blocks = block_flops(model), model.anatomy().blocks
    inner = [at for at, block in enumerate(blocks) if block.unit == "block"]
    after = sum(costs[inner[-1] + 1 :])
    tied = next((layer for layer in model.anatomy().layers() if layer.tied), None)
    if tied is not None:
        after += 2 * math.prod(tied.shapes[0])
    return [*(costs[at] for at in inner[:-1]), costs[inner[-1]] + after]


def _balanced(costs: list[float], number: int) -> list[int]:
    """Return how many of the costs in a row go to each of ``number`` chunks, at least one: the largest sum is the least possible.

    Of the ways to do that, the one that leaves the most for later chunks.
    """
    ends = [0.0]
    for cost in costs:
        ends.append(ends[-1] + cost)
    sums = sorted({ends[last] - ends[first] for first in range(len(costs)) for last in range(first + 1, len(ends))})
    low, high = 0, len(sums) - 1
    while low < high:
        half = (low + high) // 2
        low, high = (low, half) if _packed(costs, number, sums[half]) else (half + 1, high)
    counts = _packed(costs, number, sums[low])
    assert counts is not None  # noqa: S101 - the sum of all costs is among the limits
    return counts


def _packed(costs: list[float], number: int, limit: float) -> list[int] | None:
    """Return the counts of chunks filled from the last one on up to a limit; None where the first ones overflow."""
    counts, at, room = [], len(costs), limit * (1 + 1e-12)
    for chunk in reversed(range(number)):
        taken, total = 0, 0.0
        while at - taken > chunk and total + costs[at - taken - 1] <= room:
            total += costs[at - taken - 1]
            taken += 1
        if not taken:
            return None
        counts.append(taken)
        at -= taken
    return counts[::-1] if at == 0 else None
