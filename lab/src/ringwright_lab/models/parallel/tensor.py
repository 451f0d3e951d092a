"""Tensor parallelism: the matrices of every block are cut over ``tp``, by outputs and then by inputs.

Ordinary matrices are cut by PyTorch's own plans. Stacked experts are cut here: each rank has a share of every expert's width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from ringwright.ground.errors import UsageError
from ringwright_lab.models.families import ModelFamily
from ringwright_lab.models.parallel.regions import enter, leave
from ringwright_lab.models.spec import ExperimentSpec


class Experts(ParallelStyle):
    """Stacked experts (gate and up as one matrix, down), a share of the width on each rank."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        group, rank, ranks = device_mesh.get_group(), device_mesh.get_local_rank(), device_mesh.size()
        gate, up = module.gate_up_proj.detach().chunk(2, dim=1)
        both = torch.cat([each.chunk(ranks, dim=1)[rank] for each in (gate, up)], dim=1)
        down = module.down_proj.detach().chunk(ranks, dim=2)[rank].contiguous()
        trained = module.gate_up_proj.requires_grad
        module.gate_up_proj = nn.Parameter(both, requires_grad=trained)
        module.down_proj = nn.Parameter(down, requires_grad=trained)

        def before(_module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
            hidden, chosen, weights = given
            return enter(hidden, group), chosen, enter(weights, group)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(lambda _module, _given, output: leave(output, group))
        return module


class SharedKey(ParallelStyle):
    """The projection to latent keys: its last ``width`` outputs serve all heads, so every rank has a part of their gradient."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        group, width = device_mesh.get_group(), self.width

        def after(_module: nn.Module, _given: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
            latent, key = output.split([output.shape[-1] - width, width], dim=-1)
            return torch.cat([latent, enter(key, group)], dim=-1)

        module.register_forward_hook(after)
        return module


def columns() -> ColwiseParallel:
    """Return the cut by outputs."""
    return ColwiseParallel()


def rows() -> RowwiseParallel:
    """Return the cut by inputs, with a sum after it."""
    return RowwiseParallel()


def gated(prefix: str = "mlp") -> dict[str, ParallelStyle]:
    """Return the plan of a gated MLP."""
    return {f"{prefix}.gate_proj": columns(), f"{prefix}.up_proj": columns(), f"{prefix}.down_proj": rows()}


def attention() -> dict[str, ParallelStyle]:
    """Return the plan of attention with queries, keys and values apart."""
    return {**{f"self_attn.{name}_proj": columns() for name in "qkv"}, "self_attn.o_proj": rows()}


def ends() -> dict[str, ParallelStyle]:
    """Return the plan of embedding and head, cut by the vocabulary."""
    return {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }


def plan(spec: ExperimentSpec, at: int) -> dict[str, ParallelStyle]:
    """Return the plan of block ``at``."""
    if spec.model == "llama":
        return {**attention(), **gated()}
    if spec.model == "mixtral":
        return {**attention(), "mlp.experts": Experts()}
    if spec.model == "bert":
        square = {f"attention.self.{name}": columns() for name in ("query", "key", "value")}
        return {**square, "attention.output.dense": rows(), "intermediate.dense": columns(), "output.dense": rows()}
    latent = {
        "self_attn.q_b_proj": columns(),
        "self_attn.kv_b_proj": columns(),
        "self_attn.o_proj": rows(),
        "self_attn.kv_a_proj_with_mqa": SharedKey(spec.dims["rope"]),
    }
    if at < spec.dims["dense_layers"]:
        return {**latent, **gated()}
    return {**latent, "mlp.experts": Experts(), **gated("mlp.shared_experts")}


def spread(model: nn.Module, family: ModelFamily, spec: ExperimentSpec, mesh: DeviceMesh) -> nn.Module:
    """Cut the model; every rank has the same weights already, so nothing is sent. UsageError for a family without a plan."""
    if spec.model not in ("llama", "mixtral", "deepseek-v3", "bert"):
        raise UsageError(f"'{spec.model}' has no plan for tensor parallelism", remedy="another form: ddp or fsdp")
    inner = mesh["tp"]
    for at, block in enumerate(family.blocks(model)):
        parallelize_module(block, inner, plan(spec, at), src_data_rank=None)
    if spec.model != "bert":
        parallelize_module(model, inner, ends(), src_data_rank=None)
    return model
