"""Gradients are made tensor by tensor, not byte by byte: where a recording shows a bucket only, the tensors of it are drawn.

A replay cuts the backward pass before a bucket evenly (``workloads.recorded.finer``). Of the pieces of one tensor none is ready
before the others are, and no recording of buckets says which belong together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.workloads.recorded.finer import BACKWARD

if TYPE_CHECKING:
    from ringwright.workload import Task, Workload

FEWEST_ENDS, MOST_ENDS = 0.1, 1.0  # of the pieces, that end a tensor
# How long a tensor's work is for its bytes: what all before or behind share (wide layers lie at one end), and its own. Of the
# logarithm, standard deviations.
TREND, OWN = 0.4, 0.4


def lumped(workload: Workload, normal: Callable[..., float]) -> Workload:
    """Return a step whose backward pieces are of drawn tensors; ``normal(*what)`` is a standard normal number for something.

    How long each stretch takes stays, and so when the last of its pieces is ready; all ranks have the same tensors.
    """
    ends = FEWEST_ENDS + (MOST_ENDS - FEWEST_ENDS) * _chance(normal("tensors"))
    trend = TREND * normal("trend")
    seconds: dict[str, float] = {}
    for stretch, parts in _stretches(workload).items():
        own = stretch.rpartition(".")[2]
        tensors: list[list[Task]] = [[]]
        for at, each in enumerate(parts):
            tensors[-1].append(each)
            if at < len(parts) - 1 and _chance(normal("tensor", own, at)) < ends:
                tensors.append([])
        weights = [
            sum(each.seconds for each in tensor)
            * math.exp(trend * (2 * at / max(1, len(tensors) - 1) - 1) + OWN * normal("work", own, at))
            for at, tensor in enumerate(tensors)
        ]
        whole, weighed = sum(each.seconds for each in parts), sum(weights)
        for tensor, weight in zip(tensors, weights, strict=True):
            seconds |= {each.name: 0.0 for each in tensor}
            seconds[tensor[0].name] = whole * weight / weighed if weighed else 0.0
    if not seconds:
        return workload
    tasks = tuple(replace(each, seconds=seconds.get(each.name, each.seconds)) for each in workload.tasks)
    return replace(workload, tasks=tasks)


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
