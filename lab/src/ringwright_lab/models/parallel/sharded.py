"""Fully sharded data parallelism: every rank keeps a share of each parameter and gathers a block when it is needed."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from ringwright_lab.models.families import ModelFamily


def spread(model: nn.Module, family: ModelFamily, mesh: DeviceMesh) -> nn.Module:
    """Shard each block over ``dp``, and what is left as one more unit."""
    for block in family.blocks(model):
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model
