"""Every scheduler that rewrites a step's graph on real ranks: graphs of small models carried out by gloo, before and after it.

Each rank is a process that computes its own tasks on whole numbers. What all hold in the end must be what the graph means by the
reference, and what the step without the scheduler leaves behind, to the bit. All are tried on the same parallel forms as they
ship; those that find nothing to rewrite there have a form of their own, with the memory, networks or knobs under which they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringwright.costs.networks import NetworkCosts
from ringwright.graph.algebra import RewriteError
from ringwright.graph.algebra.equality import prove, small
from ringwright.ground.errors import InfeasibleError, UsageError, WorkloadError
from ringwright.jobs.model_job import GeneratedJobSpec, workload
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.registry import System
from ringwright.model.rewrites import operations
from ringwright.model.stages import Costs, LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.compose import PolicyConflictError
from ringwright_lab.judges import graph_ranks

MODEL, RANKS, MOST_ELEMENTS = "gpt3-125m", 4, 4
LINK = LinkCosts(1e9, ring=True)
NETWORKS = NetworkCosts({"rdma": LINK, "ethernet": LinkCosts(0.25e9, ring=True)})
DECLINES = (WorkloadError, InfeasibleError, RewriteError, PolicyConflictError)
EXECUTOR = "gloo-graph"


@dataclass(frozen=True)
class GraphForm:
    """A parallel form of the model in so many micro-batches, knobs of the scheduler, and what its operations take."""

    parallel: str
    micro_batches: int = 1
    knobs: Mapping[str, Any] = field(default_factory=dict)
    costs: Costs = LINK

    def __str__(self) -> str:
        return " ".join([self.parallel, *(f"{name}={value}" for name, value in self.knobs.items())])


FORMS = (GraphForm("dp4"), GraphForm("tp2,sp,dp2", 2), GraphForm("tp4,sp"), GraphForm("pp2,vp2,dp2", 4))
OWN: Mapping[str, GraphForm] = {  # by slug: 97 % of what the form holds, loops that would not pay, two networks
    "collective-einsum-overlap": GraphForm("tp2,sp,dp2", 2, {"gate": "off"}),
    "lynx": GraphForm("tp2,sp,dp2", 2, {"memory_bytes": 1_740_000_000}),
    "multidimensional-scheduling": GraphForm("pp2,vp2,dp2", 4, {"block_mb": 8}),
    "syndicate": GraphForm("tp2,sp,dp2", 2, {"segments": 2, "budget": 90}, NETWORKS),
}


@dataclass(frozen=True)
class GraphRow:
    """One form by one scheduler: ``outcome`` is exact, wrong or declined; how many rules rewrote the graph; and why.

    ``pieces`` are those of operations that the policy cuts when they are sent.
    """

    slug: str
    form: GraphForm
    outcome: str
    rules: int = 0
    why: str = ""
    pieces: int = 0

    @property
    def is_rewritten(self) -> bool:
        """Whether anything of the step was rewritten or cut at all."""
        return self.rules > 0 or self.pieces > 0


def forms(slug: str) -> tuple[GraphForm, ...]:
    """Return the forms on which a scheduler is recorded."""
    return (*FORMS, OWN[slug]) if slug in OWN else FORMS


def step(form: GraphForm) -> Workload:
    """Return the model's step in a parallel form, its times and bytes the model's, its arrays small."""
    spec = WorkloadSpec(MODEL, RANKS, form.parallel, form.micro_batches)
    return small(workload(GeneratedJobSpec(spec)), at_most=MOST_ELEMENTS)[0]


def scheduled(
    system: System, form: GraphForm, schedule: Callable[..., Workload] | None = None
) -> tuple[Workload, GraphRow]:
    """Return the step as the scheduler (or ``schedule`` in its place) makes it, or as it was where that declines."""
    before = step(form)
    try:
        after = (schedule or system.load())(before, form.costs, **form.knobs)
    except (*DECLINES, UsageError) as error:
        return before, GraphRow(system.slug, form, "declined", 0, error.what)
    cut = sum(each.pieces for each in operations(after) if each.pieces > 1)
    return after, GraphRow(system.slug, form, "", len(after.applied), pieces=cut)


def tried(system: System, form: GraphForm, schedule: Callable[..., Workload] | None = None) -> GraphRow:
    """Carry a form out on gloo ranks as the scheduler (or ``schedule`` in its place) makes it, and compare what is held."""
    after, row = scheduled(system, form, schedule)
    if row.outcome:
        return row
    wrong = list(prove(step(form), after, draws=1).differing) or graph_ranks.differing([after])[0]
    why = f"{wrong[0]} differs" if wrong else ""
    return GraphRow(system.slug, form, "wrong" if wrong else "exact", row.rules, why, row.pieces)
