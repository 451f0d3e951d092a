"""PLink's figure: throughput of training in a cloud whose racks are hidden."""

from __future__ import annotations

from ringwright_lab.papers.figures.collectives import time_us

FABRIC = "leaf-spine:64,per_leaf=8,spines=1,oversubscription=4,rate=10Gb/s,latency_s=5us"
COMPUTE_S = 0.25  # of a step of VGG-16: assumed
GRADIENTS = "553000000"  # bytes of VGG-16


def throughput_gain(
    algorithm: str = "plink:noise=0.2:seed=1", baseline: str = "ring-allreduce:order=random-1"
) -> float:
    """Return how much shorter a step is than with ``baseline``, as a share: 0 is none; nothing overlaps."""
    mine, other = (COMPUTE_S + time_us("all-reduce", FABRIC, GRADIENTS, each) / 1e6 for each in (algorithm, baseline))
    return other / mine - 1
