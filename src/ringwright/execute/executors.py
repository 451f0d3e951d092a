"""Executors by name: one small file each in the folder ``offered``, with an ``EXECUTOR``. Its listing is the registry.

``memory`` and ``sockets`` need nothing; ``openmpi`` and ``mpich`` the extra ``mpi``; ``gloo`` and ``nccl`` PyTorch. Memory and
sockets are there on every rank, whoever started it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ringwright.execute import offered
from ringwright.execute.executor import Executor
from ringwright.ground.errors import UsageError

__all__ = ["EXECUTORS", "Executor", "executor"]
_STEMS = sorted(path.stem for path in Path(offered.__file__).parent.glob("*.py") if path.stem != "__init__")
EXECUTORS: dict[str, Executor] = {
    stem.replace("_", "-"): import_module(f"{offered.__name__}.{stem}").EXECUTOR for stem in _STEMS
}


def executor(name: str) -> Executor:
    """Return the executor of that name."""
    if name not in EXECUTORS:
        raise UsageError(f"no executor '{name}'", remedy=f"one of: {', '.join(EXECUTORS)}")
    return EXECUTORS[name]
