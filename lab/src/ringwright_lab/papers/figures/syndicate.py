"""Syndicate's figures: a step of a recommender on two networks of a node, whose rates are 1 : 4."""

from __future__ import annotations

from functools import cache

from ringwright.costs.networks import NetworkCosts
from ringwright.engines.job.run import simulate
from ringwright.graph.algebra.build import BYTES, Build, partial, sliced
from ringwright.model.stages import LinkCosts, seconds
from ringwright.model.workload import Gate, Mesh, Queue, Workload
from ringwright.schedulers.decompose.syndicate import searched, syndicate
from ringwright.schedulers.decompose.syndicate._motifs import MotifPlan, MotifTimes, every_plan, kinds_of, plain
from ringwright.schedulers.search import enumerated

FAST, SLOW = "rdma", "ethernet"
RATE, RATIO, START_S = 10e9, 4.0, 5e-6  # bytes/s of the fast network, how many times the other's, seconds a round
LAYERS, FORWARD, BACKWARD, ROWS = 4, 0.25, 0.5, 0.25  # of the work: passes of the top, and what is done with rows
WORK_S = 0.1
STEPS = 4


def networks(starts: float = START_S) -> NetworkCosts:
    """Return the two networks of each node, the fast one first."""
    return NetworkCosts(
        {FAST: LinkCosts(RATE, latency_s=starts, ring=True), SLOW: LinkCosts(RATE / RATIO, latency_s=starts, ring=True)}
    )


@cache
def recommender(nodes: int, sent: float, layers: int = LAYERS) -> Workload:
    """Return a step whose operations take ``sent`` of its work on the fast network: two exchanges, and as long gradients.

    Rows are looked up and exchanged, a stack of layers works on them forward and backward, their gradients are exchanged and
    applied, and the gradients of the layers are summed: those of the last layer first.
    """
    exchange, dense = (round(share * sent * WORK_S * RATE / BYTES) for share in (0.25, 0.5 / 2 / layers))
    graph = Build(
        Mesh((("node", nodes),)), t=nodes * 4, s=nodes * 4, e=max(1, exchange // (16 * nodes)), w=max(nodes, dense)
    )
    graph.dims["w"] += -graph.dims["w"] % nodes
    tables, samples = sliced("node", "t"), sliced("node", "s")
    given = graph.input("tables", "t s e", tables)
    rows = graph.task("lookup", "", [given], "t s e", tables, seconds=WORK_S * ROWS / 2)
    held = graph.send("exchange", "A2A", rows, "node", samples, role="ep")
    for at in range(layers):
        held = graph.task(f"forward{at}", "", [held], "t s e", samples, seconds=WORK_S * FORWARD / layers)
    for at in reversed(range(layers)):
        made = graph.task(
            f"backward{at}", "", [held], "w", partial("node"), kind="B", seconds=WORK_S * BACKWARD / layers
        )
        total = graph.send(f"dense{at}", "AR", made, "node", role="dp")
        graph.task(f"update{at}", "", [total], "w", kind="U", seconds=0.0)
    back = graph.task("gradient", "", [held], "t s e", samples, kind="B", seconds=0.0)
    there = graph.send("exchange back", "A2A", back, "node", tables, role="ep")
    graph.task("apply", "", [there], "t s e", tables, kind="B", seconds=WORK_S * ROWS / 2)
    return graph.step("recommender")


def fifo(workload: Workload) -> Workload:
    """Return the workload on the fast network alone: whole operations, one at a time, first come first served."""
    roles = dict.fromkeys({each.role: 1 for each in workload.payloads}, 1)
    return workload.with_policy("fifo", queue=Queue(traffic=roles, gates=(Gate(1, 1), Gate(1, 1, "running"))))


def times_shorter(nodes: int, sent: float = 1.0, seed: int = 0) -> float:
    """Return how many times shorter the step is than first come first served on the fast network."""
    step, costs = recommender(nodes, sent), networks()
    made = syndicate(step, costs, seed=seed)
    return simulate(fifo(step), costs, steps=STEPS).step_s / simulate(made, costs, steps=STEPS).step_s


def share_sent(nodes: int, sent: float = 1.0) -> float:
    """Return the share of the fifo step in which nothing is computed."""
    return 1 - WORK_S / simulate(fifo(recommender(nodes, sent)), networks(), steps=STEPS).step_s


def seeds_that_reach_the_best(nodes: int = 4, seeds: int = 40) -> float:
    """Return the share of seeds whose walk ends at the best of all plans of at most six motifs."""
    step, costs = recommender(nodes, 1.0, 1), networks(0.0)
    timed = MotifTimes(step, costs, kinds_of(step))
    start = plain(timed.kinds, costs.networks)
    best = enumerated(every_plan(timed.kinds, costs.networks, (1, 2), 6), timed.makespan, budget=1_000_000)

    def few(plan: MotifPlan) -> bool:
        return sum(each.motifs for each in plan.kinds) <= 6

    reached = 0
    for seed in range(seeds):
        walked = searched(timed, start, costs.networks, 2, 600, seed, 3, allowed=few)
        reached += timed.makespan(walked) <= best.cost * (1 + 1e-9)
    return reached / seeds


def split_gain() -> float:
    """Return how many times the fast network's rate a sum has that is split 80 : 20 over both."""
    costs, ranks, size = networks(0.0), (0, 1), 1 << 30
    whole = seconds(costs, f"all-reduce on {FAST}", size, ranks)
    parts = (
        seconds(costs, f"all-reduce on {name}", round(size * share), ranks)
        for name, share in ((FAST, 0.8), (SLOW, 0.2))
    )
    return whole / max(parts)
