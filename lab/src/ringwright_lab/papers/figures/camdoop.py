"""Camdoop's figures: 27 servers as a torus of 3 x 3 x 3, six links of 1 Gb/s each, against the same on a switch with one."""

from __future__ import annotations

from functools import cache

import numpy as np

from ringwright.algorithms.innetwork.torus_trees import ROOT, disjoint_trees
from ringwright.calls.bounds import bounds
from ringwright.fabrics import fabric
from ringwright_lab.papers.figures.collectives import taken_us
from ringwright_lab.papers.figures.loads import busiest_s

LINK = "rate=1Gb/s,latency_s=10us"  # of a server's network port and driver; the paper's is not known
TORUS, SWITCH = f"torus:3x3x3,{LINK}", f"switch:27,{LINK}"
DATA = 27 * 6 * 6_172_840  # bytes of each server: 1 GB, in whole elements for 27 roots of six trees
PLAIN = {"reduce": "linear", "reduce-scatter": "pairwise", "all-to-all": "pairwise"}  # every server sends for itself


def over_switch(collective: str, algorithm: str = "camdoop") -> float:
    """Return how many times less time ``algorithm`` takes on the torus than servers that send for themselves over a switch."""
    other = taken_us(collective, fabric(SWITCH), DATA, PLAIN[collective])
    return other / taken_us(collective, fabric(TORUS), DATA, algorithm)


def fewer_bytes(collective: str, algorithm: str = "camdoop") -> float:
    """Return how many times fewer bytes the busiest link of the torus carries than that of the switch."""
    other = busiest_s(collective, fabric(SWITCH), DATA, PLAIN[collective])
    return other / busiest_s(collective, fabric(TORUS), DATA, algorithm)


@cache
def over_bound(algorithm: str = "camdoop") -> float:
    """Return the time of an all-reduce on the torus over the least that its links allow."""
    least_us: float = bounds("all-reduce", fabric(TORUS), DATA)["time_us"]
    return taken_us("all-reduce", fabric(TORUS), DATA, algorithm) / least_us


def disjoint_links(side: int) -> float:
    """Return how many directed links six trees of one root use on a cube, each counted once however many trees want it."""
    trees = disjoint_trees((side, side, side))
    ends = [np.flatnonzero(parents != ROOT) for parents in trees.parents]
    used = {(int(at), int(parents[at])) for parents, mine in zip(trees.parents, ends, strict=True) for at in mine}
    return float(len(used))
