"""Gradients are made tensor by tensor, not byte by byte: where a recording shows a bucket only, the tensors of it are drawn.

A replay cuts the backward pass before a bucket evenly (``workloads.recorded.finer``). Of the pieces of one tensor none is ready
before the others are, no bucket ends within it, and no recording of buckets says which belong together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.workloads.recorded.finer import BACKWARD

if TYPE_CHECKING:
    from ringwright.model.workload import Payload, Task, Workload

FEWEST_ENDS, MOST_ENDS = 0.1, 1.0  # of the pieces, that end a tensor
LARGE = 0.5  # of the draws have buckets of which one tensor holds most: embeddings, classifiers, fully connected layers
LEAST_SHARE = 0.5  # of a bucket that such a tensor is
# How long a tensor's work is for its bytes: what all before or behind share (wide layers lie at one end), and its own. Of the
# logarithm, standard deviations.
TREND, OWN = 0.4, 0.4


def lumped(workload: Workload, normal: Callable[..., float]) -> Workload:
    """Return a step whose backward pieces are of drawn tensors; ``normal(*what)`` is a standard normal number for something.

    How long each stretch takes stays, and so when the last of its pieces is ready; all ranks have the same tensors, and each is
    sent as one.
    """
    ends = FEWEST_ENDS + (MOST_ENDS - FEWEST_ENDS) * _chance(normal("tensors"))
    is_large = _chance(normal("large")) < LARGE
    trend = TREND * normal("trend")
    seconds: dict[str, float] = {}
    tensor_of: dict[str, tuple[str, int]] = {}
    for stretch, parts in _stretches(workload).items():
        own = stretch.rpartition(".")[2]
        tensors: list[list[Task]] = [[]]
        whole = _large(len(parts), normal, own) if is_large else range(0)
        for at, each in enumerate(parts):
            tensors[-1].append(each)
            is_end = at + 1 == whole.start or at + 1 == whole.stop or _chance(normal("tensor", own, at)) < ends
            if at < len(parts) - 1 and is_end and not (at in whole and at + 1 in whole):
                tensors.append([])
        weights = [
            sum(each.seconds for each in tensor)
            * math.exp(trend * (2 * at / max(1, len(tensors) - 1) - 1) + OWN * normal("work", own, at))
            for at, tensor in enumerate(tensors)
        ]
        lasted, weighed = sum(each.seconds for each in parts), sum(weights)
        for number, (tensor, weight) in enumerate(zip(tensors, weights, strict=True)):
            tensor_of |= {each.name: (own, number) for each in tensor}
            seconds |= {each.name: 0.0 for each in tensor}
            seconds[tensor[0].name] = lasted * weight / weighed if weighed else 0.0
    if not seconds:
        return workload
    tasks = tuple(replace(each, seconds=seconds.get(each.name, each.seconds)) for each in workload.tasks)
    return replace(workload, tasks=tasks, payloads=tuple(_as_tensors(workload, tensor_of)))


def _large(count: int, normal: Callable[..., float], own: str) -> range:
    """Return which of so many pieces are one tensor that is most of a bucket."""
    share = LEAST_SHARE + (1 - LEAST_SHARE) * _chance(normal("share", own))
    pieces = max(1, round(share * count))
    first = round((count - pieces) * _chance(normal("first", own)))
    return range(first, first + pieces)


def _as_tensors(workload: Workload, tensor_of: Mapping[str, tuple[str, int]]) -> list[Payload]:
    """Return the payloads with those pieces of a bucket as one that are of one tensor; ``tensor_of``: task -> its tensor."""
    sent: list[Payload] = []
    tensors: dict[tuple[str, tuple[str, int]], int] = {}
    for each in workload.payloads:
        of = next((tensor_of[name] for name in each.producers if name in tensor_of), None)
        bucket, _, number = each.name.rpartition(".")
        if of is None or not each.merges or not number.isdigit():
            sent.append(each)
            continue
        at = tensors.setdefault((bucket, of), len(sent))
        sent[at:] = [_joined(sent[at], each)] if at < len(sent) else [each]
    return sent


def _joined(before: Payload, after: Payload) -> Payload:
    """Return two pieces of one tensor as one, which is ready with the second and waited for by all that use either."""
    return replace(
        after,
        size_bytes=before.size_bytes + after.size_bytes,
        elements=before.elements + after.elements,
        consumers=tuple(dict.fromkeys((*before.consumers, *after.consumers))),
    )


def _chance(normal: float) -> float:
    """Return a standard normal number as one from 0 to 1, each as probable as the other."""
    return 0.5 * (1 + math.erf(normal / math.sqrt(2)))


def _stretches(workload: Workload) -> dict[str, list[Task]]:
    """Return the parts of each task of the backward pass that was cut, in their order."""
    parts: dict[str, list[Task]] = defaultdict(list)
    for each in workload.tasks:
        stretch, _, number = each.name.rpartition(".")
        if each.kind == BACKWARD and number.isdigit() and stretch in workload.task:
            parts[stretch].append(each)
    return {stretch: [*listed, workload.task[stretch]] for stretch, listed in parts.items()}
