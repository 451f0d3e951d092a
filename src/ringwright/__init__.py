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

from ringwright.ground.moved import remember

if TYPE_CHECKING:
    from ringwright.advise.entry import advice
    from ringwright.algorithms import language
    from ringwright.analysis.metrics import metrics
    from ringwright.analysis.summary import summarise as summary
    from ringwright.calls.arguments import algorithm
    from ringwright.calls.bounds import bound
    from ringwright.calls.calibrate import calibrate
    from ringwright.calls.verify import verify
    from ringwright.capture.difference import difference as diff
    from ringwright.capture.run import run
    from ringwright.engines.result import Run
    from ringwright.fabrics import fabric
    from ringwright.formats.sources import read
    from ringwright.formats.sources.sample import sample
    from ringwright.ground import errors
    from ringwright.jobs.arguments import scheduler
    from ringwright.jobs.exporting import export
    from ringwright.jobs.model_step import job
    from ringwright.jobs.predict import simulate
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology
    from ringwright.model.trace import Trace
    from ringwright.model.workload import Workload
    from ringwright.reports import notebook as pictures
    from ringwright.workloads.replay import replay
    from ringwright_lab.bench.entry import bench
    from ringwright_lab.live.on_ranks import schedule
    from ringwright_lab.papers.paper_run import reproduce
    from ringwright_lab.survey.entry import survey
    from ringwright_lab.survey.systems_list import systems

    __version__: str
remember()
# public name -> where it lives; an empty attribute means the module itself
_HOMES = {
    "Collective": ("ringwright.model.collective", "Collective"),
    "Program": ("ringwright.model.program", "Program"),
    "Run": ("ringwright.engines.result", "Run"),
    "Topology": ("ringwright.model.topology", "Topology"),
    "Trace": ("ringwright.model.trace", "Trace"),
    "Workload": ("ringwright.model.workload", "Workload"),
    "advice": ("ringwright.advise.entry", "advice"),
    "algorithm": ("ringwright.calls.arguments", "algorithm"),
    "bench": ("ringwright_lab.bench.entry", "bench"),
    "bound": ("ringwright.calls.bounds", "bound"),
    "calibrate": ("ringwright.calls.calibrate", "calibrate"),
    "diff": ("ringwright.capture.difference", "difference"),
    "errors": ("ringwright.ground.errors", ""),
    "export": ("ringwright.jobs.exporting", "export"),
    "fabric": ("ringwright.fabrics", "fabric"),
    "job": ("ringwright.jobs.model_step", "job"),
    "language": ("ringwright.algorithms.language", ""),
    "metrics": ("ringwright.analysis.metrics", "metrics"),
    "pictures": ("ringwright.reports.notebook", ""),
    "read": ("ringwright.formats.sources", "read"),
    "replay": ("ringwright.workloads.replay", "replay"),
    "reproduce": ("ringwright_lab.papers.paper_run", "reproduce"),
    "run": ("ringwright.capture.run", "run"),
    "sample": ("ringwright.formats.sources.sample", "sample"),
    "schedule": ("ringwright_lab.live.on_ranks", "schedule"),
    "scheduler": ("ringwright.jobs.arguments", "scheduler"),
    "simulate": ("ringwright.jobs.predict", "simulate"),
    "summary": ("ringwright.analysis.summary", "summarise"),
    "survey": ("ringwright_lab.survey", ""),  # a room that is called like the function of its name
    "systems": ("ringwright_lab.survey.systems_list", "systems"),
    "verify": ("ringwright.calls.verify", "verify"),
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
        return import_module("ringwright.ground.version").VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'ringwright' has no attribute '{name}'")
    module_name, attribute = _HOMES[name]
    if module_name.startswith("ringwright_lab"):
        import_module("ringwright.ground.laboratory").require(f"ringwright.{name}")
    module = import_module(module_name)
    value: object = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Name what ``ringwright.`` completes to."""
    return sorted(__all__)
