"""Blink: spanning trees packed on whatever links a job got.

Idea: for any set of GPUs, directed trees out of a root whose rates add up to the tightest cut between the root and any other GPU,
    instead of rings that leave links idle; chunks follow one another down all trees at once.
Cost: n/W for trees of W bytes/s together, plus (height - 1) (latency + chunk/w); an all-reduce goes up and down the same trees at
    once, each link shared by both.
Knobs: chunk, bytes of the largest (none: tuned, doubled while that is faster, then taken back in steps); trees (packed, one-hop:
    straight to all others, as on a switch; best: the faster); epsilon of the packing; within, the part of the rate that may be
    lost for fewer trees; pcie (beside: trees over PCIe besides those over NVLink, where they help); peer_off, seconds until PCIe
    can begin; link_model, whether a link is free during its latency; seed of the integer programs; budget of seconds, which
    only stops the search.
Holds: no link carries more than its rate; the rate is at least (1 - epsilon) times the cut before trees are left out, and at
    least (1 - within) times the best of its trees after that.
Figure: up to 8x faster synchronisation than NCCL on parts of a DGX-1, 6 trees instead of 181 on a whole one (abstract).
Source: Wang et al.: Blink, MLSys 2020, arXiv 1910.04940. Trees of all roots for all-gather, low roots for all-reduce: ours.
Declines: all-to-all and scans; an all-reduce over links that lead one way only; more than 1,000,000 trees times arcs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms.networks import machine_of
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.searching import ALPHA_OF, Budget, Deadline, LinkModel, told
from ringwright.algorithms.synthesis.blink._plans import BlinkPlan, Effort, Planner
from ringwright.ground.errors import DeclinedError
from ringwright.ground.knobs import Range, Seconds, Seed
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "gather", "scatter")
FABRICS = ("ring", "full", "switch", "torus:2x3", "dgx-1:1", "ndv2:2")
NEEDS = ("topology.links",)
MOST_ARCS = 1_000_000  # times roots


def blink(
    collective: Collective,
    topology: Topology | None = None,
    *,
    chunk: Annotated[int, Range(1, 1 << 40, "B")] | None = None,
    trees: Literal["best", "packed", "one-hop"] = "best",
    epsilon: Annotated[float, Range(0.02, 0.5)] = 0.05,
    within: Annotated[float, Range(0, 0.5)] = 0.05,
    pcie: Literal["beside", "never"] = "beside",
    peer_off: Seconds = 0.0,
    link_model: LinkModel = "pipelined",
    seed: Seed = 0,
    budget: Budget | None = None,
) -> Program:
    """Return the program of the trees that are packed for a collective on the links between its ranks."""
    require_op("blink", collective, OPS)
    require_commutative("blink", collective)
    if collective.p == 1:
        return nothing("blink", collective)
    machine = machine_of(collective, topology)
    deadline = Deadline(budget)
    planner = Planner(collective, machine, Effort(epsilon, within, seed, deadline, peer_off))
    _require_few(planner)
    alpha = ALPHA_OF[link_model]
    tuned = [(plan, plan.data.tuned(machine, chunk, alpha=alpha)) for plan in _plans(planner, trees, pcie)]
    plan, best = min(tuned, key=lambda each: (each[1].time_ps, each[0].trees))
    facts: dict[str, object] = {"algorithm": plan.method, "trees": plan.trees, "height": plan.height}
    if plan.packed:
        facts["packed"] = plan.packed
    facts["rate_gbs"] = plan.rate / 1e9
    if math.isfinite(plan.most):
        facts["most_gbs"] = plan.most / 1e9
    facts["chunk_bytes"] = math.ceil(plan.data.largest_bytes / best.pieces)
    return told(best.program, **facts, stopped=deadline.stopped)


def _require_few(planner: Planner) -> None:
    roots = planner.collective.p if planner.own_roots else 1
    if planner.wiring.arcs.count * roots > MOST_ARCS:
        raise DeclinedError(
            f"blink: {planner.wiring.arcs.count:,} arcs and {roots:,} roots are more than is packed ({MOST_ARCS:,})",
            where=planner.collective.label,
            remedy="--method forest, or fewer ranks",
        )


def _plans(planner: Planner, trees: str, pcie: str) -> list[BlinkPlan]:
    """Return the plans that are to be tried: those of one hop alone where no trees can be much faster."""
    straight = planner.one_hop() if trees != "packed" else None
    if straight is not None and (trees == "one-hop" or planner.is_near(straight)):
        return [straight]
    if trees == "one-hop":
        raise DeclinedError(
            "blink: not any two ranks have a link or a switch between them",
            where=planner.collective.label,
            remedy="trees=packed, or none of both",
        )
    packed = planner.packed()
    return [*(packed if pcie == "beside" else packed[:1]), *([straight] if straight is not None else [])]
