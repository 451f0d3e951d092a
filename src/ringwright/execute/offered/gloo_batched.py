"""Messages of torch.distributed over gloo, a step's at once."""

from __future__ import annotations

from ringwright.execute.executor import Executor

EXECUTOR = Executor("gloo-batched", "torch-batched", "torch", says="torch.distributed messages over gloo, step by step")
