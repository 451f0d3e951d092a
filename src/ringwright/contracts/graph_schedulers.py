"""Every scheduler that rewrites a step's graph on real ranks: graphs of small models carried out by gloo, before and after it.

Each rank is a process that computes its own tasks on whole numbers. What all hold in the end must be what the graph means by the
reference, and what the step without the scheduler leaves behind, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringwright.algebra import RewriteError
from ringwright.algebra.equal import prove, small
from ringwright.costs.stages import LinkCosts
from ringwright.errors import InfeasibleError, UsageError, WorkloadError
from ringwright.registry import System
from ringwright.schedulers.compose import PolicyConflictError
from ringwright.studies import graph_ranks
from ringwright.studies.jobs.generated import GeneratedJobSpec, workload
from ringwright.studies.model_workload import WorkloadSpec
from ringwright.workload import Workload

MODEL, RANKS, MOST_ELEMENTS = "gpt3-125m", 4, 4
FORMS = {"dp4": 1, "tp2,sp,dp2": 2, "tp4,sp": 1, "pp2,vp2,dp2": 4}  # parallel form -> micro-batches
LINK = LinkCosts(1e9, ring=True)
DECLINES = (WorkloadError, InfeasibleError, RewriteError, PolicyConflictError)
EXECUTOR = "gloo-graph"


@dataclass(frozen=True)
class GraphRow:
    """One form by one scheduler: ``outcome`` is exact, wrong or declined; how many rules rewrote the graph; and why."""

    slug: str
    form: str
    outcome: str
    rules: int = 0
    why: str = ""


def step(form: str) -> Workload:
    """Return the model's step in a parallel form, its times and bytes the model's, its arrays small."""
    return small(workload(GeneratedJobSpec(WorkloadSpec(MODEL, RANKS, form, FORMS[form]))), at_most=MOST_ELEMENTS)[0]


def tried(system: System, form: str, schedule: Callable[..., Workload] | None = None) -> GraphRow:
    """Carry a form out on gloo ranks as the scheduler (or ``schedule`` in its place) makes it, and compare what is held."""
    before = step(form)
    try:
        after = (schedule or system.load())(before, LINK)
    except (*DECLINES, UsageError) as error:
        return GraphRow(system.slug, form, "declined", 0, error.what)
    wrong = list(prove(before, after, draws=1).differing) or graph_ranks.differing([after])[0]
    why = f"{wrong[0]} differs" if wrong else ""
    return GraphRow(system.slug, form, "wrong" if wrong else "exact", len(after.applied), why)
