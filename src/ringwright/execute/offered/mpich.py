"""MPI messages of MPICH, which starts the ranks."""

from __future__ import annotations

from ringwright.execute.executor import Executor

EXECUTOR = Executor("mpich", "mpi", "mpi", "mpich", "MPI messages of MPICH")
