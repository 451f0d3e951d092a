"""Expert parallelism: each rank has whole experts and its own tokens; tokens travel to their experts and back by all-to-all.

What is not an expert is fully sharded over the same ranks, under the role ``dp``. Tokens travel in one of two ways. Without a
``capacity`` every chosen expert gets its token: ranks first tell each other how many come, and sizes depend on the routing.
With a ``capacity`` each rank has that many places for each expert: sizes are known beforehand, and tokens that find no place
skip the expert.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from ringwright.ground.errors import UsageError
from ringwright_lab.models.families import ModelFamily
from ringwright_lab.models.parallel.groups import line
from ringwright_lab.models.spec import ExperimentSpec


class _Exchange(torch.autograd.Function):
    """Rows to other ranks and from them; gradients take the way back."""

    @staticmethod
    def forward(
        context: Any, rows: torch.Tensor, into: list[int], out: list[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        context.return_path = (out, into, group)
        return _exchanged(rows, into, out, group)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _exchanged(gradient, *context.return_path), None, None, None


def _exchanged(rows: torch.Tensor, into: list[int], out: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    got = rows.new_empty(sum(into), *rows.shape[1:])
    dist.all_to_all_single(got, rows.contiguous(), into, out, group=group)
    return got


class Spread(nn.Module):
    """Takes the place of stacked experts: the same answer, with a share of the experts on this rank."""

    def __init__(self, experts: nn.Module, group: dist.ProcessGroup, capacity: int) -> None:
        super().__init__()
        self.ranks, self.total, self.capacity, self.group = group.size(), experts.num_experts, capacity, group
        self.each = self.total // self.ranks
        mine = slice(group.rank() * self.each, (group.rank() + 1) * self.each)
        for name, whole in list(experts.named_parameters()):
            part = nn.Parameter(whole.detach()[mine].clone(), requires_grad=whole.requires_grad)
            if part.requires_grad:
                part.register_hook(lambda gradient: gradient / self.ranks)  # the loss is the mean over ranks
            setattr(experts, name, part)
        experts.num_experts = self.each
        self.experts = experts

    def forward(self, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum over the ``chosen`` experts (tokens, active) of each token."""
        travel = self._in_places if self.capacity else self._all
        back = travel(hidden, chosen).unflatten(0, chosen.shape)
        return (back * weights.unsqueeze(-1)).sum(1).to(hidden.dtype)

    def _all(self, hidden: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Return what the experts made of every (token, choice), in that order."""
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self.total)
        coming = _exchanged(counts, [self.each] * self.ranks, [self.each] * self.ranks, self.group).view(self.ranks, -1)
        out, into = counts.view(self.ranks, -1).sum(1).tolist(), coming.sum(1).tolist()
        got = _Exchange.apply(hidden[order // chosen.shape[1]], into, out, self.group)
        experts = torch.arange(self.each).repeat(self.ranks).repeat_interleave(coming.flatten())
        back: torch.Tensor = _Exchange.apply(self._answer(got, experts), out, into, self.group)
        return back[order.argsort()]

    def _in_places(self, hidden: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Return the same, but zero for a choice that found no place."""
        flat, active = chosen.flatten(), chosen.shape[1]
        earlier = nn.functional.one_hot(flat, self.total).cumsum(0).gather(1, flat.unsqueeze(1)).squeeze(1) - 1
        places = self.total * self.capacity
        at = torch.where(earlier < self.capacity, flat * self.capacity + earlier, places)
        rows = hidden.repeat_interleave(active, 0)
        sent = torch.zeros_like(hidden[:1]).expand(places + 1, -1).index_add(0, at, rows)[:places]
        even = [places // self.ranks] * self.ranks
        got = _Exchange.apply(sent, even, even, self.group)
        experts = torch.arange(self.each).repeat_interleave(self.capacity).repeat(self.ranks)
        back: torch.Tensor = _Exchange.apply(self._answer(got, experts), even, even, self.group)
        return torch.cat([back, torch.zeros_like(back[:1])])[at]

    def _answer(self, rows: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        """Return what our experts make of rows, one expert each."""
        output: torch.Tensor = self.experts(rows, experts.unsqueeze(1), torch.ones_like(rows[:, :1]))
        return output


def spread(model: nn.Module, family: ModelFamily, spec: ExperimentSpec, mesh: DeviceMesh) -> nn.Module:
    """Share out the experts over ``ep`` and shard the rest over ``dp``; UsageError where experts do not come out even."""
    ranks, capacity = spec.ranks("ep"), int(spec.parallel.get("capacity", 0))
    if spec.dims.get("experts", 0) % ranks or "experts" not in spec.dims:
        raise UsageError(f"'{spec.model}' has no experts that {ranks} ranks could share evenly", remedy="another form")
    if spec.fake is not None and not capacity:
        raise UsageError(
            "the fake group knows no routing, so sizes must be fixed", remedy="a capacity, as in 'capacity': 8"
        )
    group, data = mesh.get_group("ep"), line("dp", mesh.size())
    for block in family.blocks(model):
        if hasattr(block.mlp, "experts"):
            block.mlp.experts = Spread(block.mlp.experts, group, capacity)
    kept = {parameter for module in model.modules() if isinstance(module, Spread) for parameter in module.parameters()}
    for unit in (*family.blocks(model), model):
        fully_shard(unit, mesh=data, ignored_params=kept)
    return model
