"""Generators of realistic inputs with a known answer, for tests of readers (ours and yours)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringwright.testing.nccl_fields import RELEASES
from ringwright.testing.nccl_job import (
    Launch,
    NcclCall,
    NcclJob,
    TrainingLine,
    deepseek_v3_inference,
    make_job,
    training_job,
)
from ringwright.testing.nccl_log import GeneratedLog, write_log

__all__ = [
    "RELEASES",
    "GeneratedLog",
    "Launch",
    "NcclCall",
    "NcclJob",
    "TrainingLine",
    "deepseek_v3_inference",
    "make_job",
    "training_job",
    "write_coll_log",
    "write_log",
]


def write_coll_log(
    path: str | Path, size_bytes: int, ranks: int = 64, seed: int = 0, dirty: float = 0.01
) -> dict[str, Any]:
    """Write about ``size_bytes`` of COLL lines fast; see ``nccl_bulk`` (imported late, because it needs NumPy)."""
    from ringwright.testing import nccl_bulk

    return nccl_bulk.write_coll_log(path, size_bytes, ranks=ranks, seed=seed, dirty=dirty)
