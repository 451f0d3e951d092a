"""The contracts of everything that plugs in, for what is yours: ``failures(check_algorithm(my_algorithm)) == []``."""

from __future__ import annotations

from ringwright.contracts.algorithm import AlgorithmCase, check_algorithm
from ringwright.contracts.codec import check_codec
from ringwright.contracts.executor import check_executor
from ringwright.contracts.export import check_export
from ringwright.contracts.fabric import check_fabric
from ringwright.contracts.family import check_family
from ringwright.contracts.law import check_law
from ringwright.contracts.outcome import Outcome, failures
from ringwright.contracts.pipeline import check_pipeline
from ringwright.contracts.rewrite import check_rewrite
from ringwright.contracts.scheduler import check_scheduler
from ringwright.contracts.source import check_source, check_trace

__all__ = [
    "AlgorithmCase",
    "Outcome",
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
]
