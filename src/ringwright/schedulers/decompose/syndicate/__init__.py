"""Syndicate: operations are composed of motifs, and which, on which network, in which order is searched for together.

Idea: How a collective is carried out and when it runs are decided by different layers. Motifs are what both share: operations
    of which a larger one is composed (whole; scatter and gather; level by level), of a range of its bytes, on one of several
    networks, with a priority. Plan and order are searched for together, so that all networks are busy beside the work.
Cost: A motif takes alpha + bytes f beta of its network; a step is a list schedule of one stream of work and a queue a network,
    at least max(work, the busiest network). Accepted with min(1, exp(-worse / temperature)): a Markov chain that cools down.
Knobs: ``segments`` (5) byte ranges of an operation at most; ``budget`` (1000) plans that are timed, fewer of large jobs;
    ``seed`` (0) of the walk; ``restarts`` (3) walks from the plan of a library.
Holds: Each byte of each operation is carried once; the plan is never worse than that of a library, and the same for a seed; all
    ranks issue one order on each network.
Figure: 21 to 74 % faster training of large models.
Source: Mahajan et al., NSDI 2023, pp. 809-824.
Declines: Jobs without a collective of several ranks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Annotated

from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import RewriteError
from ringwright.graph.algebra.assumed_values import valued
from ringwright.ground.errors import WorkloadError
from ringwright.ground.knobs import Range, Seed
from ringwright.model.stages import Costs, NetworkedCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.syndicate._motifs import (
    MotifPlan,
    MotifTimes,
    OperationKind,
    OperationPlan,
    kinds_of,
    legs,
    plain,
)
from ringwright.schedulers.decompose.syndicate._plan import carried_out
from ringwright.schedulers.search import annealed

CHANGES = ("mesh", "classes", "tasks", "edges", "payloads", "values", "applied")
STEPS = 4
MOST_TIMED, FEWEST = 400_000, 30  # tasks and operations over all plans; plans at the least
HOT, COLD = 0.2, 1e-3
IN_PRACTICE = (
    "in practice: one communicator a network (NCCL_SOCKET_IFNAME, NCCL_IB_HCA and NCCL_NET of its own process group), "
    "the order of calls the same on all ranks"
)


def syndicate(
    workload: Workload,
    costs: Costs,
    *,
    segments: Annotated[int, Range(1, 16)] = 5,
    budget: Annotated[int, Range(1, 100_000)] = 1_000,
    seed: Seed = 0,
    restarts: Annotated[int, Range(1, 64)] = 3,
) -> Workload:
    """Return the workload with its collectives as motifs on the networks that there are, in the order that was found."""
    before = valued(workload)
    kinds, networks = kinds_of(before), costs.networks if isinstance(costs, NetworkedCosts) else ("",)
    if not kinds:
        raise WorkloadError(
            "syndicate: no collective of several ranks whose values are known",
            where=workload.name,
            remedy="a job with all-reduces, gathers, scatters or exchanges: --parallel with tp, dp or ep",
        )
    timed = MotifTimes(before, costs, kinds)
    start = plain(kinds, networks)
    many = min(budget, max(FEWEST, MOST_TIMED // (len(before.tasks) + len(before.payloads))))
    chosen = searched(timed, start, networks, segments, many, seed, restarts)
    clock = f"{timed.makespan(start) * 1e3:,.6g} to {timed.makespan(chosen) * 1e3:,.6g} ms a step by its own clock"
    told = [
        f"{len(kinds)} kinds of operations on {len(networks)} network{'s' * (len(networks) > 1)}, {many} plans timed: {clock}"
    ]
    first_s, best = simulate(before, costs, steps=STEPS).step_s, before
    try:
        made = carried_out(before, kinds, chosen, networks)
        made_s = simulate(made, costs, steps=STEPS).step_s
    except RewriteError as error:
        made, made_s = before, inf
        told.append(f"the plan was left out: {error.what}")
    if made_s < first_s * (1 - 1e-9):
        told.append(f"step {first_s * 1e3:,.6g} to {made_s * 1e3:,.6g} ms; {_said(chosen, kinds)}")
        best = made
    elif made_s < inf:
        longer = made_s > first_s * (1 + 1e-6)
        change = (
            f"with it a step takes {made_s * 1e3:,.6g} ms, {first_s * 1e3:,.6g} without"
            if longer
            else "it changes nothing"
        )
        told.append(f"the plan was left out: {change}")
    return best.saying("syndicate", *told, IN_PRACTICE).with_policy("syndicate", agreement="static")


def searched(
    timed: MotifTimes,
    start: MotifPlan,
    networks: tuple[str, ...],
    segments: int,
    budget: int,
    seed: int,
    restarts: int,
    *,
    allowed: Callable[[MotifPlan], bool] = lambda _: True,
) -> MotifPlan:
    """Return the best plan of several walks among those that are ``allowed``."""
    best, least = start, timed.makespan(start)
    for walk in range(restarts):
        chosen = annealed(
            start,
            lambda plan, draw: neighbour(plan, timed.kinds, networks, segments, draw),
            lambda plan: timed.makespan(plan) if allowed(plan) else inf,
            budget=max(1, budget // restarts),
            seed=seed * 1_000 + walk,
            hot=HOT,
            cold=COLD,
        )
        if chosen.cost < least:
            best, least = chosen.candidate, chosen.cost
    return best


def neighbour(
    plan: MotifPlan, kinds: tuple[OperationKind, ...], networks: tuple[str, ...], segments: int, draw: random.Random
) -> MotifPlan:
    """Return a plan that differs by one move: a template, a number of segments, a motif's network, or two priorities."""
    at = draw.randrange(len(kinds))
    mine, op = plan.kinds[at], kinds[at].payload.op
    moves = [
        "template",
        "segments",
        *(["network"] if len(networks) > 1 else []),
        *(["order"] if len(kinds) > 1 else []),
    ]
    move = draw.choice(moves)
    if move == "order":
        one, other = draw.sample(range(len(kinds)), 2)
        order = list(plan.order)
        order[one], order[other] = order[other], order[one]
        return replace(plan, order=tuple(order))
    if move == "network":
        segment, leg = draw.randrange(len(mine.networks)), draw.randrange(len(mine.networks[0]))
        row = list(mine.networks[segment])
        row[leg] = draw.choice(networks)
        changed = (*mine.networks[:segment], tuple(row), *mine.networks[segment + 1 :])
        new = OperationPlan(mine.template, changed)
    else:
        template = draw.choice(kinds[at].templates) if move == "template" else mine.template
        count = draw.randint(1, segments) if move == "segments" else len(mine.networks)
        many = len(legs(op, template))
        old = [network for row in mine.networks for network in row]
        new = OperationPlan(
            template, tuple(tuple(old[(row + leg) % len(old)] for leg in range(many)) for row in range(count))
        )
    return replace(plan, kinds=(*plan.kinds[:at], new, *plan.kinds[at + 1 :]))


def _said(plan: MotifPlan, kinds: tuple[OperationKind, ...]) -> str:
    listed = []
    for at in plan.order[:6]:
        mine, kind = plan.kinds[at], kinds[at]
        used = {name: sum(row.count(name) for row in mine.networks) for row in mine.networks for name in row if name}
        where = f" on {', '.join(f'{name} {many}' for name, many in sorted(used.items()))}" if used else ""
        listed.append(
            f"{len(kind.names)} {kind.payload.op} of {kind.payload.role}: {mine.template} in {len(mine.networks)}{where}"
        )
    return "; ".join(listed)
