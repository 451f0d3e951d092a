"""What an update is: one after another, that of each layer's parameters, element by element.

Adam and gradient descent change an element by its gradient and its states alone, so an update may be cut along its elements.
Where gradients of several layers were copied into one buffer, to be summed, these layers need that as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringwright.model.values import Work, WorkPart
from ringwright.workloads.parameter_values import Owned
from ringwright.workloads.stage import RankClassBuilder
from ringwright.workloads.task_work import update_work
from ringwright.workloads.tensors import Tensors

OF_LAYER = ("gradient", "gradient_sum", "states", "parameters", "own_parameters")
ELEMENTS = "elements"


def parted(stage: RankClassBuilder, layers: Sequence[Owned], tensors: Tensors) -> None:
    """Say of each update which layers it changes, and with which of its values."""
    blocks: dict[str, list[Owned]] = {}
    for each in layers:
        blocks.setdefault(each.block, []).append(each)
    for block, mine in blocks.items():
        task = f"{stage.name}.U.{block}"
        whole = any(each.touched is not None for each in mine)  # rows that were looked up, of a table
        if task in stage.work and not whole and tensors.step.parallel.zero != 3:
            stage.work[task] = _in_parts(stage, task, mine, tensors)


def _in_parts(stage: RankClassBuilder, task: str, layers: Sequence[Owned], tensors: Tensors) -> Work:
    reads, writes = list(stage.read.get(task, ())), list(stage.written.get(task, ()))
    named = [{f"{stage.name}.{each.block}.{each.layer}.{what}" for what in OF_LAYER} for each in layers]
    common = [at for at, name in enumerate(reads) if not any(name in mine for mine in named)]
    zero = tensors.step.parallel.zero
    numbers = [
        each.elements / tensors.mesh.extent(stage.roles[each.role]) if zero else float(each.elements) for each in layers
    ]
    parts = []
    for each, number, mine in zip(layers, numbers, named, strict=True):
        takes = tuple(at for at, name in enumerate(reads) if name in mine)
        makes = tuple(at for at, name in enumerate(writes) if name in mine)
        summed = tensors.step.parallel.sp and not each.cut and each.role == "dp"  # over tp, in one buffer
        work = replace(update_work(number), cuts={ELEMENTS: 0.0})
        parts.append(WorkPart(number / sum(numbers), work, (*takes, *(common if summed else ())), makes))
    if len(parts) == 1:
        return replace(stage.work[task], cuts=parts[0].work.cuts)
    return replace(stage.work[task], parts=tuple(parts))
