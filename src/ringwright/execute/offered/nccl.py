"""Messages of torch.distributed over NCCL, on GPUs."""

from __future__ import annotations

from ringwright.execute.executor import Executor

EXECUTOR = Executor("nccl", "torch-batched", "torch-nccl", says="torch.distributed messages over NCCL")
