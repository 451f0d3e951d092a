"""Data parallelism: every rank has the whole model, DistributedDataParallel adds the gradients in buckets.

Annotations are objects here, not strings: DDP looks at those of its hooks.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from ringwright_lab.models.spec import ExperimentSpec


def spread(model: nn.Module, spec: ExperimentSpec, mesh: DeviceMesh) -> nn.Module:
    """Return the model, its gradients averaged over ``dp``."""
    group = mesh.get_group("dp")
    made = DistributedDataParallel(model, process_group=group, bucket_cap_mb=spec.bucket_cap_mb)
    if spec.fake is not None:
        made.register_comm_hook(group, _fake_sum)
    return made


def _fake_sum(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Add a bucket up over the fake group, whose own answer lacks the tensor that DDP wants back."""
    dist.all_reduce(bucket.buffer(), group=group)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
