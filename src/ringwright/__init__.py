"""Ringwright: see what your collectives did.

The names below are loaded when first touched, so that ``import ringwright`` costs next to nothing::

    import ringwright

    trace = ringwright.read("job/")  # a Trace: tables of events, communicators, connections, and a ledger
    ringwright.summary(trace)["operations"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright import errors
    from ringwright.analysis.metrics import metrics
    from ringwright.analysis.summary import summarise as summary
    from ringwright.sources import read
    from ringwright.studies.jobs.live import schedule
    from ringwright.trace import Trace
    from ringwright.workload import Workload
    from ringwright.workloads.replay import replay

__version__ = "0.1.0"
__all__ = ["Trace", "Workload", "__version__", "errors", "metrics", "read", "replay", "schedule", "summary"]

# public name -> where it lives; an empty attribute means the module itself
_HOMES = {
    "Trace": ("ringwright.trace", "Trace"),
    "Workload": ("ringwright.workload", "Workload"),
    "errors": ("ringwright.errors", ""),
    "metrics": ("ringwright.analysis.metrics", "metrics"),
    "read": ("ringwright.sources", "read"),
    "replay": ("ringwright.workloads.replay", "replay"),
    "schedule": ("ringwright.studies.jobs.live", "schedule"),
    "summary": ("ringwright.analysis.summary", "summarise"),
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringwright' has no attribute '{name}'")
    module_name, attribute = _HOMES[name]
    module = import_module(module_name)
    value: object = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Name what ``ringwright.`` completes to."""
    return sorted(__all__)
