"""Gradients are made tensor by tensor, not byte by byte: where a recording shows a bucket only, the tensors of it are drawn.

A replay cuts the backward pass before a bucket evenly (``workloads.recorded.finer``). Of the pieces of one tensor none is ready
before the others are, and no recording of buckets says which belong together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.workloads.recorded.finer import BACKWARD

if TYPE_CHECKING:
    from ringwright.workload import Task, Workload

FEWEST_ENDS, MOST_ENDS = 0.1, 1.0  # of the pieces, that end a tensor


def lumped(workload: Workload, chance: Callable[..., float]) -> Workload:
    """Return a step whose backward pieces are of drawn tensors; ``chance(*what)`` is a number from 0 to 1 for something.

    How long each stretch takes stays, and so when the last of its pieces is ready; all ranks have the same tensors.
    """
    ends = FEWEST_ENDS + (MOST_ENDS - FEWEST_ENDS) * chance("tensors")
    seconds: dict[str, float] = {}
    for stretch, parts in _stretches(workload).items():
        own = stretch.rpartition(".")[2]
        begun, taken = parts[0].name, 0.0
        for at, each in enumerate(parts):
            taken += each.seconds
            seconds[each.name] = 0.0
            if at == len(parts) - 1 or chance("tensor", own, at) < ends:
                seconds[begun], taken = taken, 0.0
                begun = parts[at + 1].name if at + 1 < len(parts) else ""
    if not seconds:
        return workload
    tasks = tuple(replace(each, seconds=seconds.get(each.name, each.seconds)) for each in workload.tasks)
    return replace(workload, tasks=tasks)


def _stretches(workload: Workload) -> dict[str, list[Task]]:
    """Return the parts of each task of the backward pass that was cut, in their order."""
    parts: dict[str, list[Task]] = defaultdict(list)
    for each in workload.tasks:
        stretch, _, number = each.name.rpartition(".")
        if each.kind == BACKWARD and number.isdigit() and stretch in workload.task:
            parts[stretch].append(each)
    return {stretch: [*listed, workload.task[stretch]] for stretch, listed in parts.items()}
