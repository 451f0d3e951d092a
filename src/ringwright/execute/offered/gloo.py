"""Messages of torch.distributed over gloo."""

from __future__ import annotations

from ringwright.execute.executor import Executor

EXECUTOR = Executor("gloo", "torch", "torch", says="torch.distributed messages over gloo")
