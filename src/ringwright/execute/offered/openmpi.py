"""MPI messages of Open MPI, which starts the ranks."""

from __future__ import annotations

from ringwright.execute.executor import Executor

EXECUTOR = Executor("openmpi", "mpi", "mpi", "open-mpi", "MPI messages of Open MPI")
