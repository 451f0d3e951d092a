"""The contracts of everything that plugs in, for what is yours: ``failures(check_algorithm(my_algorithm)) == []``."""

from __future__ import annotations

from ringwright.contracts.algorithm import AlgorithmCase, check_algorithm
from ringwright.contracts.export import check_export
from ringwright.contracts.family import check_family
from ringwright.contracts.outcome import Outcome, failures
from ringwright.contracts.scheduler import check_scheduler
from ringwright.contracts.source import check_source, check_trace

__all__ = [
    "AlgorithmCase",
    "Outcome",
    "check_algorithm",
    "check_export",
    "check_family",
    "check_scheduler",
    "check_source",
    "check_trace",
    "failures",
]
