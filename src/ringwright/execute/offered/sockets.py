"""Local processes over TCP."""

from __future__ import annotations

from ringwright.execute.executor import Executor

EXECUTOR = Executor("sockets", "sockets", says="local processes over TCP")
