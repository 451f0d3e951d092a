"""NetAgg's figures: boxes beside the switches of a tree of racks, and a master that takes what they leave."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from ringwright.algorithms.innetwork.keyed import left_bytes
from ringwright.algorithms.innetwork.middlebox_trees import DIRECT, middlebox_tree, switches_with_middleboxes
from ringwright.fabrics import fabric
from ringwright.model.topology import Topology
from ringwright_lab.papers.figures.collectives import taken_us
from ringwright_lab.papers.figures.loads import busiest_s, loads_of

STAR = "middleboxes:{ranks},rate={rate},middlebox_rate={middlebox_rate}"  # a master and its workers on one switch with one box
CLUSTER = "middleboxes:16x4x4,oversubscription=4,at={at}"  # 16 servers of 1 Gb/s a rack, 1:4 above it, boxes of 10 Gb/s
DATA = 5_242_880  # bytes of each worker
GBIT = 1.25e8


def share_of_direct(ranks: int, rate: str, middlebox_rate: str, algorithm: str = "netagg") -> float:
    """Return the simulated time of a sum at a master over that of workers that send to it themselves."""
    machine = fabric(STAR.format(ranks=ranks, rate=rate, middlebox_rate=middlebox_rate))
    return taken_us("reduce", machine, DATA, algorithm) / taken_us("reduce", machine, DATA, "linear")


def bytes_of_direct(ranks: int, rate: str, middlebox_rate: str, algorithm: str = "netagg") -> float:
    """Return the same of the seconds that the busiest link is busy."""
    machine = fabric(STAR.format(ranks=ranks, rate=rate, middlebox_rate=middlebox_rate))
    return busiest_s("reduce", machine, DATA, algorithm) / busiest_s("reduce", machine, DATA, "linear")


def knee_gbit(workers: int, highest: int = 40) -> float:
    """Return the least Gb/s of a box, of whole ones, from which a faster box helps no more; workers have 1 Gb/s."""
    spec = STAR.format(ranks=workers + 1, rate="1Gb/s", middlebox_rate="{}Gb/s")
    loads = loads_of("reduce", fabric(spec.format(1)), DATA, "netagg")
    taken = [float((loads / fabric(spec.format(rate)).rate).max()) for rate in range(1, highest + 1)]
    return 1.0 + next(at for at, time in enumerate(taken) if math.isclose(time, taken[-1], rel_tol=1e-9))


def completion(ratio: float, at: str) -> float:
    """Return the seconds of the busiest link with boxes at a tier over those without, for a job of all servers.

    ``ratio``: bytes of the whole result over those of all input.
    """
    machine = fabric(CLUSTER.format(at=at))
    return _busy_s(machine, ratio) / _busy_s(fabric(CLUSTER.format(at="none")), ratio)


def largest(at: str, ratio: float = 0.05) -> float:
    """Return how many times faster a job is with boxes at a tier, its master in the first rack."""
    return 1 / completion(ratio, at)


def order_of_tiers(ratio: float = 0.05) -> float:
    """Return the smaller of the two steps from boxes in the core to boxes in pods to boxes everywhere, in times."""
    core, pod, every = (largest(at, ratio) for at in ("core", "pod", "all"))
    return min(pod / core, every / pod)


def growing(at: str) -> float:
    """Return the number of ratios, of twenty rising ones, at which a job with boxes gains more than at the one before."""
    taken = [completion(ratio, at) for ratio in np.linspace(0.05, 1, 20)]
    return float(sum(later < before - 1e-9 for before, later in pairwise(taken)))


def _busy_s(machine: Topology, ratio: float) -> float:
    """Return the seconds of the busiest link where all servers send to the first one over the boxes on their way."""
    count = machine.n_ranks - 1
    tree = middlebox_tree(machine, switches_with_middleboxes(machine), range(1, machine.n_ranks), 0)
    below = np.zeros(len(tree.nodes), np.int64)  # workers whose records have met at each box
    for first in tree.first_of:
        at = first
        while at != DIRECT:
            below[at] += 1
            at = tree.parents[at]
    ends = [(rank, tree.nodes[first] if first != DIRECT else 0, 1) for rank, first in enumerate(tree.first_of, 1)]
    ends += [
        (node, tree.nodes[above] if above != DIRECT else 0, int(met))
        for node, above, met in zip(tree.nodes, tree.parents, below, strict=True)
    ]
    src, dst, met = (np.array(column) for column in zip(*ends, strict=True))
    starts, links = machine.routes(src, dst)
    size = np.array([left_bytes(each, count, DATA, max(ratio, 1 / count)) for each in met.tolist()])
    loads = np.bincount(links, weights=np.repeat(size, np.diff(starts)), minlength=machine.n_links)
    return float((loads / machine.rate).max())
