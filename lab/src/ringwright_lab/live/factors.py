"""Sufficient factors: of a linear layer the two factors of its gradient travel instead of the gradient.

Idea: the gradient of an M x N weight over K samples is the sum of K outer products, so all ranks' u (K x M) and v (K x N) give
everybody the sum. Cost: K (p - 1) (M + N) values in and as many out, against 2 M N (p1 + p2 - 2) / p2 of a sharded parameter
server on the same machines. Source: Poseidon (USENIX ATC 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ringwright.ground.errors import UsageError


def best_scheme(rows: int, columns: int, batch: int, workers: int, servers: int | None = None) -> str:
    """Return ``factors`` or ``server`` (without ``servers``: ``all-reduce``, on a ring), whichever moves fewer values."""
    factors = 2 * batch * (workers - 1) * (rows + columns)
    if servers is None:
        return "factors" if factors * workers <= 4 * rows * columns * (workers - 1) else "all-reduce"
    return "factors" if factors * servers <= 2 * rows * columns * (workers + servers - 2) else "server"


class Factors:
    """The linear layers ``names`` of a model; ``exchange()`` after backward makes their gradients the mean over ranks."""

    def __init__(self, model: torch.nn.Module, names: Sequence[str], group: Any = None) -> None:
        self._group, self._ranks = group, dist.get_world_size(group)
        self._layers: dict[str, Any] = {}
        self._held: dict[str, tuple[Any, Any]] = {}
        self._handles = []
        self.sent_bytes = 0
        for name in names:
            layer = model.get_submodule(name)
            if not isinstance(layer, torch.nn.Linear):
                raise UsageError(
                    f"{name} is a {type(layer).__name__}; only a linear layer's gradient is an outer product",
                    remedy="send its gradient whole",
                )
            self._layers[name] = layer
            self._handles.append(
                layer.register_forward_hook(lambda _m, args, out, name=name: self._seen(name, args, out))
            )

    def _seen(self, name: str, args: Any, out: Any) -> None:
        if out.requires_grad:
            inputs = args[0].detach()
            out.register_hook(lambda gradient: self._keep(name, inputs, gradient))

    def _keep(self, name: str, inputs: Any, gradient: Any) -> None:
        v, u = inputs.reshape(-1, inputs.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        if name in self._held:  # another call of the layer, or another micro-batch
            u, v = torch.cat([self._held[name][0], u]), torch.cat([self._held[name][1], v])
        self._held[name] = (u, v)

    def exchange(self) -> None:
        """Gather all ranks' factors and rebuild; every rank calls it, with equal batches. UsageError without a backward."""
        for name, layer in self._layers.items():
            if name not in self._held:
                raise UsageError(f"{name} has seen no backward pass", remedy="exchange() after each backward()")
            u, v = (self._gathered(each.contiguous()) for each in self._held.pop(name))
            layer.weight.grad = (u.t() @ v).div_(self._ranks)
            if layer.bias is not None:
                layer.bias.grad = u.sum(0).div_(self._ranks)

    def _gathered(self, mine: Any) -> Any:
        parts = [torch.empty_like(mine) for _ in range(self._ranks)]
        dist.all_gather(parts, mine, group=self._group)
        self.sent_bytes += mine.numel() * mine.element_size() * (self._ranks - 1)
        return torch.cat(parts)

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
