"""How ranks begin together: one group of their own, one model, connections to rank 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ringwright.ground.errors import UsageError
from ringwright_lab.live.control_channel import ControlConnection, connect
from ringwright_lab.live.profile import Parameter


@dataclass(frozen=True)
class Team:
    """The ranks of a schedule, numbered within their group; ``share`` broadcasts rank 0's object, ``gather`` collects."""

    rank: int
    world: int
    group: Any
    wires: dict[int, ControlConnection]
    parameters: dict[str, Any]
    described: dict[str, Parameter]
    share: Callable[[Any], Any]
    gather: Callable[[Any], list[Any]]


def team(model: torch.nn.Module, group: Any, timeout_s: float) -> Team:
    """Return the team of a model; UsageError for what cannot be scheduled, or differs between ranks."""
    if not dist.is_available() or not dist.is_initialized():
        raise UsageError("there is no process group", remedy="torch.distributed.init_process_group('gloo') first")
    parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
    _refuse(model, parameters)
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    own = dist.new_group(
        ranks, timeout=timedelta(seconds=2 * timeout_s + 30), backend="gloo", use_local_synchronization=True
    )
    rank, world = ranks.index(dist.get_rank()), len(ranks)

    def share(value: Any) -> Any:
        held = [value]
        dist.broadcast_object_list(held, src=ranks[0], group=own)
        return held[0]

    def gather(value: Any) -> list[Any]:
        held: list[Any] = [None] * world
        dist.all_gather_object(held, value, group=own)
        return held

    described = {name: _described(model, name, each) for name, each in parameters.items()}
    started = Team(rank, world, own, {}, parameters, described, share, gather)
    same_everywhere(started, repr(described).encode(), "model's parameters")
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.detach(), src=ranks[0], group=own)
    started.wires.update(connect(rank, world, share, timeout_s))
    return started


def _refuse(model: torch.nn.Module, parameters: dict[str, Any]) -> None:
    if not parameters:
        raise UsageError(f"{type(model).__name__} has no parameter that wants a gradient")
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise UsageError(
            "DistributedDataParallel already sends the gradients", remedy="give schedule() the module inside it"
        )
    for name, each in parameters.items():
        if each.device.type != "cpu":
            raise UsageError(
                f"{name} is on {each.device}: its gradient is there only when a stream has come to it, which these threads "
                "do not follow",
                remedy="live ranks run on CPUs; for GPUs export the buckets to DistributedDataParallel",
            )
        if not each.dtype.is_floating_point:
            raise UsageError(f"{name} is {each.dtype}; gradients of real numbers only")
        if type(each).__name__ == "DTensor":
            raise UsageError(f"{name} is a DTensor; whole parameters only", remedy="a model that is not sharded")


def _described(model: torch.nn.Module, name: str, parameter: Any) -> Parameter:
    """Return what the network sees; a linear layer's weight also has the sizes of its factors."""
    owner = model.get_submodule(name.rpartition(".")[0])
    linear = isinstance(owner, torch.nn.Linear) and parameter.dim() == 2
    factors = (int(parameter.shape[0]), int(parameter.shape[1])) if linear else None
    return Parameter(
        name, parameter.numel(), parameter.element_size(), str(parameter.dtype).removeprefix("torch."), factors
    )


def same_everywhere(team: Team, value: bytes, what: str) -> None:
    """Raise UsageError, on all ranks, where a rank has another ``value`` than rank 0."""
    values = team.gather(value)
    odd = [rank for rank, each in enumerate(values) if each != values[0]]
    if odd:
        raise UsageError(
            f"rank {', '.join(map(str, odd))} has another {what} than rank 0",
            remedy="build the same model and policy, with the same seed and settings, on every rank",
        )
