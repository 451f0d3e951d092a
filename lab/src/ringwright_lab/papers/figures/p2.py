"""P2's figures: placements of one and two axes on nodes of A100 and V100 with one port each, and the reductions of one axis."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

from ringwright.algorithms.synthesis.p2.machine import levels_of
from ringwright.algorithms.synthesis.p2.matrices import Matrix, matrices
from ringwright.calls.placed_reductions import reduction_s
from ringwright.fabrics import fabric

# Data sheets: NVLink3 300 GB/s each way a GPU, 100 Gb/s a node of 16 (Google Cloud a2-megagpu-16g); ndv2: NVLink2, 100 Gb/s.
A100 = "rail-optimised:{},gpus=16,gpus_per_nic=16,nvlink_rate=300GB/s,pcie_rate=31.5GB/s,nic_rate=100Gb/s,layout=switch"
SYSTEMS = tuple((name, nodes) for name in (A100, "ndv2:{}") for nodes in (2, 4))
FLOATS_A_NODE = 1 << 29
IMPROVED = 1.01  # times that one all-reduce takes longer
KEEP = 5

Case = tuple[str, Matrix, int]  # a machine, a placement, and which axis is reduced


@cache
def predicted_s(machine: str, matrix: Matrix, over: int, length: int) -> float:
    """Return the seconds of a reduction by the best sequence of at most ``length`` instructions."""
    topology = fabric(machine)
    nodes = levels_of(topology, range(topology.n_ranks)).sizes[0]
    return reduction_s(topology, matrix, [over], 4 * FLOATS_A_NODE * nodes, length=length, keep=KEEP)


def axes_of(devices: int) -> Iterator[tuple[int, ...]]:
    """Yield one axis, and every pair of powers of two that fills the machine."""
    yield (devices,)
    yield from ((1 << at, devices >> at) for at in range(1, devices.bit_length() - 1))


def questions(most: int | None = None) -> Iterator[list[Case]]:
    """Yield the placements (the first ``most``) of the same axes on a machine with the same one reduced, of all systems."""
    for name, nodes in SYSTEMS:
        machine = name.format(nodes)
        topology = fabric(machine)
        levels = levels_of(topology, range(topology.n_ranks)).sizes
        for axes in axes_of(topology.n_ranks):
            for over in range(len(axes)):
                yield [(machine, matrix, over) for matrix in islice(matrices(axes, levels), most)]


def placement_ratio(placements: int | None = None) -> float:
    """Return how many times longer one all-reduce takes by the worst placement than by the best, at most."""
    times = ([predicted_s(*case, 1) for case in cases] for cases in questions(placements))
    return max(max(each) / min(each) for each in times)


def gains(length: int = 5) -> list[float]:
    """Return how many times longer one all-reduce takes than the best sequence, of each placement and reduction."""
    cases = [case for cases in questions() for case in cases]
    return [predicted_s(*case, 1) / predicted_s(*case, length) for case in cases]


def improved_share(length: int = 5) -> float:
    """Return the share of placements and reductions that a sequence improves, by more than 1 %."""
    every = gains(length)
    return sum(gain > IMPROVED for gain in every) / len(every)


def average_gain(length: int = 5) -> float:
    """Return the mean gain of those that are improved; 1 where none is."""
    better = [gain for gain in gains(length) if gain > IMPROVED]
    return sum(better) / len(better) if better else 1.0


def largest_gain(length: int = 5) -> float:
    """Return the largest gain."""
    return max(gains(length))


def placements(nodes: int, gpus: int) -> int:
    """Return how many parallelism matrices pairs of powers of two have on nodes of so many GPUs."""
    return sum(len(list(matrices(axes, (nodes, gpus)))) for axes in axes_of(nodes * gpus) if len(axes) > 1)
