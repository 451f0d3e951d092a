"""A small model on the ranks of a pipeline, in the order of a file, as torch.distributed.pipelining loads it.

Stages are linear layers with a rectifier between, of small whole numbers in double precision: sums are exact in any order, so
gradients that differ in one bit from those of the unpipelined model are wrong.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    ScheduleLoopedBFS,
    _PipelineScheduleRuntime,
)

WIDTH, ROWS = 8, 2  # of a layer, and of a micro-batch


def stage_of(stage: int) -> nn.Module:
    """Return a stage: the same numbers on every rank that asks."""
    draw = torch.Generator().manual_seed(stage)
    layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=draw).double())
    return nn.Sequential(layer, nn.ReLU())


def batch(micro_batches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets, float64 of shape (micro-batches x ROWS, WIDTH)."""
    draw = torch.Generator().manual_seed(1)
    shape = (micro_batches * ROWS, WIDTH)
    inputs, targets = (torch.randint(-2, 3, shape, generator=draw).double() for _ in range(2))
    return inputs, targets


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return a sum, whose gradients are whole numbers."""
    return ((output - target) ** 2).sum()


def unpipelined(stages: int, micro_batches: int) -> dict[str, torch.Tensor]:
    """Return the gradients of all stages, one after another and the whole batch at once."""
    model = nn.ModuleList([stage_of(at) for at in range(stages)])
    value, target = batch(micro_batches)
    for each in model:
        value = each(value)
    loss(value, target).backward()
    return gradients(dict(enumerate(model)))


def gradients(stages: dict[int, nn.Module]) -> dict[str, torch.Tensor]:
    """Return the gradients of some stages by stage and name."""
    return {
        f"{at}.{name}": parameter.grad
        for at, module in stages.items()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def differing(order: Path | None, mine: list[int], stages: int, micro_batches: int) -> list[str]:
    """Run one step on this rank and return the parameters whose gradients are not, to the bit, those of the whole model.

    Without an ``order`` it is PyTorch's own breadth-first schedule.
    """
    modules = {at: stage_of(at) for at in mine}
    parts = [PipelineStage(module, at, stages, torch.device("cpu")) for at, module in modules.items()]
    schedule: PipelineScheduleMulti
    if order is None:
        schedule = ScheduleLoopedBFS(parts, micro_batches, loss, scale_grads=False)
    else:
        schedule = _PipelineScheduleRuntime(parts, micro_batches, loss, scale_grads=False)
        schedule._load_csv(str(order), format="compute_only")
    inputs, targets = batch(micro_batches)
    schedule.step(*([inputs] if 0 in mine else []), target=targets if stages - 1 in mine else None)
    whole, own = unpipelined(stages, micro_batches), gradients(modules)
    expected = [name for name in whole if int(name.split(".")[0]) in modules]
    dist.barrier()
    return [name for name in expected if name not in own or not torch.equal(own[name], whole[name])]
