"""Data parallelism: every rank has the whole model, DistributedDataParallel adds the gradients in buckets."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from ringwright.execute.models.spec import Spec


def spread(model: nn.Module, spec: Spec, mesh: DeviceMesh) -> nn.Module:
    """Return the model, its gradients averaged over ``dp``."""
    return DistributedDataParallel(model, process_group=mesh.get_group("dp"), bucket_cap_mb=spec.bucket_cap_mb)
