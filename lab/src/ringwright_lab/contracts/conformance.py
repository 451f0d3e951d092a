"""The contracts of everything that plugs in, for what is yours: ``failures(check_algorithm(my_algorithm)) == []``."""

from __future__ import annotations

from ringwright_lab.contracts.algorithm import AlgorithmCase, check_algorithm
from ringwright_lab.contracts.codec import check_codec
from ringwright_lab.contracts.executor import check_executor
from ringwright_lab.contracts.export import check_export
from ringwright_lab.contracts.fabric import check_fabric
from ringwright_lab.contracts.family import check_family
from ringwright_lab.contracts.law import check_law
from ringwright_lab.contracts.outcome import Outcome, failures
from ringwright_lab.contracts.pipeline import check_pipeline
from ringwright_lab.contracts.rewrite import check_rewrite
from ringwright_lab.contracts.scheduler import check_scheduler
from ringwright_lab.contracts.source import check_source, check_trace

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
