"""The two ends of a region in which ranks hold parts: a sum over ranks on the way in backwards, or on the way out forwards."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class _Enter(torch.autograd.Function):
    """The same tensor; its gradients, of which each rank has a part, are added up."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=context.group)
        return total, None


class _Leave(torch.autograd.Function):
    """The sum of the ranks' tensors; its gradient is the same for all."""

    @staticmethod
    def forward(_context: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def enter(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return x, to be used for a part of what follows on each rank."""
    entered: torch.Tensor = _Enter.apply(x, group)
    return entered


def leave(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return the sum of the parts."""
    left: torch.Tensor = _Leave.apply(x, group)
    return left
