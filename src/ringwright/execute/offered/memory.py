"""Local processes that share memory."""

from __future__ import annotations

from ringwright.execute.executor import Executor

EXECUTOR = Executor("memory", "memory", says="local processes that share memory")
