"""Ringwright: see what your collectives did, and what they would have done.

``dir(ringwright)`` is the whole of the public face; each name is loaded when it is first touched, so that ``import
ringwright`` costs next to nothing, and each tells its parameters, units and an example by ``help``::

    import ringwright

    trace = ringwright.read("job/")                                 # what happened: a Trace
    ringwright.summary(trace)["operations"]                         # plain data, ready for JSON
    ringwright.simulate(trace, "dgx-h100:8", policy="p3")           # the same step in another order
    ringwright.simulate("all-reduce", "dgx-h100:8", algorithm="blueconnect", size="256M")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright import errors, language, pictures
    from ringwright.advise.by_name import advice
    from ringwright.analysis.metrics import metrics
    from ringwright.analysis.summary import summarise as summary
    from ringwright.collective import Collective
    from ringwright.engines.result import Run
    from ringwright.fabrics import fabric
    from ringwright.papers.by_name import reproduce
    from ringwright.program import Program
    from ringwright.sources import read
    from ringwright.sources.sample import sample
    from ringwright.studies.bench.asked import bench
    from ringwright.studies.bounds import bound
    from ringwright.studies.calibrate import calibrate
    from ringwright.studies.difference import difference as diff
    from ringwright.studies.exporting import export
    from ringwright.studies.jobs.live import schedule
    from ringwright.studies.jobs.modelled import job
    from ringwright.studies.predict import simulate
    from ringwright.studies.run import run
    from ringwright.studies.spelled import algorithm, scheduler
    from ringwright.studies.verify import verify
    from ringwright.survey.by_name import survey
    from ringwright.survey.listed import systems
    from ringwright.topology import Topology
    from ringwright.trace import Trace
    from ringwright.workload import Workload
    from ringwright.workloads.replay import replay

    __version__: str
# public name -> where it lives; an empty attribute means the module itself
_HOMES = {
    "Collective": ("ringwright.collective", "Collective"),
    "Program": ("ringwright.program", "Program"),
    "Run": ("ringwright.engines.result", "Run"),
    "Topology": ("ringwright.topology", "Topology"),
    "Trace": ("ringwright.trace", "Trace"),
    "Workload": ("ringwright.workload", "Workload"),
    "advice": ("ringwright.advise.by_name", "advice"),
    "algorithm": ("ringwright.studies.spelled", "algorithm"),
    "bench": ("ringwright.studies.bench.asked", "bench"),
    "bound": ("ringwright.studies.bounds", "bound"),
    "calibrate": ("ringwright.studies.calibrate", "calibrate"),
    "diff": ("ringwright.studies.difference", "difference"),
    "errors": ("ringwright.errors", ""),
    "export": ("ringwright.studies.exporting", "export"),
    "fabric": ("ringwright.fabrics", "fabric"),
    "job": ("ringwright.studies.jobs.modelled", "job"),
    "language": ("ringwright.language", ""),
    "metrics": ("ringwright.analysis.metrics", "metrics"),
    "pictures": ("ringwright.pictures", ""),
    "read": ("ringwright.sources", "read"),
    "replay": ("ringwright.workloads.replay", "replay"),
    "reproduce": ("ringwright.papers.by_name", "reproduce"),
    "run": ("ringwright.studies.run", "run"),
    "sample": ("ringwright.sources.sample", "sample"),
    "schedule": ("ringwright.studies.jobs.live", "schedule"),
    "scheduler": ("ringwright.studies.spelled", "scheduler"),
    "simulate": ("ringwright.studies.predict", "simulate"),
    "summary": ("ringwright.analysis.summary", "summarise"),
    "survey": ("ringwright.survey", ""),  # a room that is called like the function of its name
    "systems": ("ringwright.survey.listed", "systems"),
    "verify": ("ringwright.studies.verify", "verify"),
}
__all__ = [
    "Collective",
    "Program",
    "Run",
    "Topology",
    "Trace",
    "Workload",
    "__version__",
    "advice",
    "algorithm",
    "bench",
    "bound",
    "calibrate",
    "diff",
    "errors",
    "export",
    "fabric",
    "job",
    "language",
    "metrics",
    "pictures",
    "read",
    "replay",
    "reproduce",
    "run",
    "sample",
    "schedule",
    "scheduler",
    "simulate",
    "summary",
    "survey",
    "systems",
    "verify",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name == "__version__":
        return import_module("ringwright.version").VERSION
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
