"""What tests of yours and ours share: the contracts of everything that plugs in, and generators of inputs with a known answer."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright_lab.testing.nccl_fields import RELEASES
from ringwright_lab.testing.nccl_job import (
    Launch,
    NcclCall,
    NcclJob,
    TrainingLine,
    deepseek_v3_inference,
    make_job,
    training_job,
)
from ringwright_lab.testing.nccl_log import GeneratedLog, write_log

if TYPE_CHECKING:
    from ringwright_lab.contracts.conformance import (
        check_algorithm,
        check_codec,
        check_executor,
        check_export,
        check_fabric,
        check_family,
        check_law,
        check_pipeline,
        check_rewrite,
        check_scheduler,
        check_source,
        check_trace,
        failures,
    )

CONTRACTS = (
    "check_algorithm",
    "check_codec",
    "check_executor",
    "check_export",
    "check_fabric",
    "check_family",
    "check_law",
    "check_pipeline",
    "check_rewrite",
    "check_scheduler",
    "check_source",
    "check_trace",
    "failures",
)

__all__ = [
    "RELEASES",
    "GeneratedLog",
    "Launch",
    "NcclCall",
    "NcclJob",
    "TrainingLine",
    "check_algorithm",
    "check_codec",
    "check_executor",
    "check_export",
    "check_fabric",
    "check_family",
    "check_law",
    "check_pipeline",
    "check_rewrite",
    "check_scheduler",
    "check_source",
    "check_trace",
    "deepseek_v3_inference",
    "failures",
    "make_job",
    "training_job",
    "write_coll_log",
    "write_log",
]


def write_coll_log(
    path: str | Path, size_bytes: int, ranks: int = 64, seed: int = 0, dirty: float = 0.01
) -> dict[str, Any]:
    """Write about ``size_bytes`` of COLL lines fast; see ``nccl_bulk`` (imported late, because it needs NumPy)."""
    from ringwright_lab.testing import nccl_bulk

    return nccl_bulk.write_coll_log(path, size_bytes, ranks=ranks, seed=seed, dirty=dirty)


def __getattr__(name: str) -> Any:
    """Load a contract when it is first asked for: generators need no engines."""
    if name in CONTRACTS:
        return getattr(import_module("ringwright_lab.contracts.conformance"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
