"""MVAPICH2's figure: several leaders a node (DPML) against one."""

from __future__ import annotations

from ringwright_lab.papers.figures.collectives import taken_us
from ringwright_lab.papers.figures.machines import one_port

NODES, CORES = 16, 28  # two Skylake of 14 cores; the paper goes to 64 nodes
OMNI_PATH, NETWORK_S = 12.5e9, 1e-6  # 100 Gb/s a node
COPY, ADD, INSIDE_S = 8e9, 4e9, 0.3e-6  # bytes/s that a core copies and adds up, a step in shared memory: assumed
SIZES = (16 << 10, 64 << 10, 256 << 10)


def gain(leaders: int, size_bytes: int) -> float:
    """Return how many times longer an all-reduce takes with one leader a node than with ``leaders``."""
    machine = one_port(
        NODES, CORES, inside_rate=COPY, port_rate=OMNI_PATH, inside_s=INSIDE_S, network_s=NETWORK_S, reduce_rate=ADD
    )
    one, several = (taken_us("all-reduce", machine, size_bytes, f"mvapich:leaders={each}") for each in (1, leaders))
    return one / several


def largest_gain(leaders: int) -> float:
    """Return the largest gain over sizes from 16 to 256 KiB, as a share: 0 is none."""
    return max(gain(leaders, size) for size in SIZES) - 1
