"""The gradients of a segment as one buffer in two slices: what is summed in backward, and what in the next forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from ringwright.graph.pipelines.stages import PipelineStages
from ringwright.model.values import SLICED
from ringwright.model.workload import Payload, Workload
from ringwright.schedulers.decompose._buckets import alike

Todo = tuple[str, str, Mapping[str, Any]]


@dataclass(frozen=True)
class Slice:
    """A sum of a segment's gradients: its name once the rules have made it, and which part of the buffer it is."""

    name: str
    of: str
    chunk: int
    is_forward: bool
    share: float
    rules: tuple[Todo, ...] = ()


def slices(workload: Workload, stages: PipelineStages, ratio: float | None) -> list[Slice]:
    """Return the slices of every segment of every device, later segments first."""
    made: list[Slice] = []
    for of in stages.devices:
        for chunk in reversed(range(stages.shape.chunks)):
            mine = _gradients(workload, of, chunk)
            share = _forward_share(workload, of, chunk, ratio) if chunk else 0.0
            made += _cut(workload, mine, chunk, share)
    return made


def _gradients(workload: Workload, of: str, chunk: int) -> list[Payload]:
    """Return the sums of a segment's gradients, those of its last layers first, as the buffer holds them."""
    chunk_of = {task.name: task.slot[1] for task in workload.tasks if task.of == of and task.per == "micro-batch"}
    mine = [each for each in workload.gradients() if each.of == of and not each.joint and each.source and each.result]
    mine = [each for each in mine if workload.mesh.extent(each.axes) > 1]
    return [each for each in mine if {chunk_of.get(name) for name in each.producers} == {chunk}]


def _forward_share(workload: Workload, of: str, chunk: int, ratio: float | None) -> float:
    """Return r / (k r + 1): the share of a buffer that takes as much of forward as the rest does of backward."""
    forward = backward = 0.0
    kinds = set()
    for task in workload.tasks:
        if task.of == of and task.per == "micro-batch" and task.slot[1] == chunk:
            if task.slot[0] == "F":
                forward += task.seconds
            else:
                backward += task.seconds
                kinds.add(task.kind)
    again = 2 if {"B", "dO"} <= kinds else 1  # activations are computed again
    if ratio is None:
        return forward / (forward + backward) if forward + backward else 0.0
    return ratio / (again * ratio + 1)


def _cut(workload: Workload, mine: list[Payload], chunk: int, share: float) -> Iterator[Slice]:
    """Yield the slices of a buffer: sums of whole layers, and one layer cut in two where the border lies within it."""
    total = sum(each.size_bytes for each in mine)
    border = total * (1 - share)
    parts: dict[bool, list[Payload]] = {False: [], True: []}
    names: dict[str, str] = {}
    rules: list[Todo] = []
    at = 0
    for each in mine:
        end = at + each.size_bytes
        size = _elements(workload, each, (border - at) / each.size_bytes) if at < border < end else None
        if size is not None:
            dim, first, rest = size
            rules.append(("cut", each.name, {"dim": dim, "parts": [first, rest]}))
            parts[False].append(each)
            parts[True].append(each)
            names |= {f"{each.name}|False": f"{each.name}.0", f"{each.name}|True": f"{each.name}.1"}
        else:
            parts[(at + end) / 2 > border].append(each)
        at = end
    for is_forward, several in parts.items():
        kind = partial(alike, workload)
        ordered = sorted(several, key=lambda each: str(kind(each)))
        for _, group in groupby(ordered, key=kind):
            members = [names.get(f"{each.name}|{is_forward}", each.name) for each in group]
            fused: tuple[Todo, ...] = (("fuse", members[0], {"others": members[1:]}),) if len(members) > 1 else ()
            name = f"{members[0]}.fused" if fused else members[0]
            yield Slice(name, mine[0].of, chunk, is_forward, share, (*rules, *fused))
            rules = []


def _elements(workload: Workload, payload: Payload, share: float) -> tuple[str, int, int] | None:
    """Return the dimension of a layer's gradients and the two sizes it is cut into; None where one would be nothing."""
    value = workload.value[payload.source]
    if len(value.dims) != 1:
        return None
    ((dim, size),) = value.dims
    blocks = 1
    for axis in value.axes(SLICED, dim):
        blocks *= workload.mesh.sizes[axis]
    first = round(share * size / blocks) * blocks
    return (dim, first, size - first) if 0 < first < size else None
