"""All-to-all along the maximum concurrent flow.

Idea: a linear program over flows says in how little time all pairs can exchange their blocks, whatever the routes, and its prices
    of links prove it. The flow falls into paths, through ranks where they go through ranks; along these chunks are sent
    on, those with the longest journey left first. On a machine that looks the same from all ranks one source stands for all.
Cost: T = the optimum of the flow, plus the arcs of a path one after the other for the first and the last chunk.
Knobs: chunks of a path and merge, the most of a message (none: what is best at the size); link_model, whether a link is busy
    during its latency; budget of seconds, which ends the choice between them.
Holds: no resource carries more than the optimum says, and no exchange at all takes less than ``proved_us``.
Figure: 512 ranks: 701 s in PCCL (Won et al.); here the flow and its proof take a second, on one core.
Source: Shahrokhi and Matula, J. ACM 37(2), 1990; folding by turns and the order of chunks: ours.
Declines: a linear program of more than 400,000 variables, and more than two million moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.networks import machine_of, network
from ringwright.algorithms.offers import require_op
from ringwright.algorithms.searching import ALPHA_OF, Budget, Deadline, LinkModel, Pieces, told
from ringwright.algorithms.synthesis.flow_all_to_all._choice import best
from ringwright.algorithms.synthesis.flow_all_to_all._classes import classes
from ringwright.algorithms.synthesis.flow_all_to_all._question import Question
from ringwright.bounds.arcs import arcs
from ringwright.bounds.concurrent_flow import concurrent_flow, link_prices, proved_s
from ringwright.bounds.forests import hops
from ringwright.engines.machine import machine
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-to-all",)
FABRICS = ("ring:8", "full:6", "switch:8", "torus:2x3", "mesh:3x3", "dgx-1:1", "dgx-a100:2")


def flow_all_to_all(
    collective: Collective,
    topology: Topology | None = None,
    *,
    chunks: Pieces | None = None,
    merge: Pieces | None = None,
    link_model: LinkModel = "pipelined",
    budget: Budget | None = None,
) -> Program:
    """Return the program of an all-to-all along the maximum concurrent flow."""
    require_op("flow-all-to-all", collective, OPS)
    p, alpha = collective.p, ALPHA_OF[link_model]
    if p == 1:
        return nothing("flow-all-to-all", collective)
    topology, deadline = machine_of(collective, topology), Deadline(budget)
    blocks = np.resize(collective.block_bytes, p * p).astype(np.int64)
    demand = np.maximum(blocks, max(1, int(blocks.max()) >> 20)).astype(float).reshape(p, p)
    apart = demand[~np.eye(p, dtype=bool)]
    even = bool(np.ptp(apart) <= collective.unit_bytes)
    if even:
        demand[:] = apart.max()
    made = arcs(topology, collective.group, turning=even)
    for each in (made, made.turned_round()):
        hops(each, np.zeros(1, np.int64))  # raises where a rank is not reached
    flow = concurrent_flow(made, demand)
    proved = proved_s(topology, collective.group, demand, link_prices(flow, topology, collective.group))
    engine = machine(topology, alpha)
    question = Question(
        collective,
        topology,
        blocks,
        flow,
        classes(network(engine, made, collective.group), made, topology),
        engine,
        alpha,
    )
    chosen, program = best(question, chunks, merge, deadline)
    return told(
        program,
        chunks=chosen.pieces,
        merge=chosen.merge,
        order="farthest" if chosen.farthest else "oldest",
        parts=question.parts,
        flow_us=round(flow.time_s * 1e6, 3),
        proved_us=round(proved * 1e6, 3),
        stopped=deadline.stopped,
    )
