"""SCCL's figures: rounds of the algorithms in its table, the bound, and how much faster than NCCL on a DGX-1."""

from __future__ import annotations

from ringwright.algorithms.synthesis.sccl import sccl
from ringwright.bounds.round_limits import wires_of
from ringwright.bounds.rounds import rounds_bound
from ringwright.fabrics import fabric as made_fabric
from ringwright.model.collective import Collective
from ringwright_lab.papers.figures.collectives import taken_us

COLLECTIVES = ("all-gather", "all-reduce", "broadcast", "all-to-all")
SIZES = tuple(1 << power for power in range(10, 31, 4))


def rounds(collective: str, fabric: str, chunks: int, steps: int) -> int:
    """Return the fewest rounds with so many chunks a block and so many steps (of an all-reduce: in either half)."""
    topology = made_fabric(fabric)
    asked = Collective(collective, range(topology.n_ranks), 1 << 20)
    told = sccl(asked, topology, chunks=chunks, steps=steps).knobs["rounds"]
    assert isinstance(told, int)  # noqa: S101 - as it tells them
    return told


def least_rounds(fabric: str) -> float:
    """Return the bound on rounds per chunk of an all-gather that prices on the links prove."""
    topology = made_fabric(fabric)
    ranks = range(topology.n_ranks)
    flows = [(rank, tuple(end for end in ranks if end != rank)) for rank in ranks]
    return float(rounds_bound(wires_of(topology, ranks), flows).per_chunk)


def largest_gain(algorithm: str = "sccl", baseline: str = "nccl-2-4") -> float:
    """Return how many times faster than the baseline it is at most, over collectives and sizes on a DGX-1."""
    topology = made_fabric("dgx-1:1")
    return max(
        taken_us(collective, topology, size, baseline) / taken_us(collective, topology, size, algorithm)
        for collective in COLLECTIVES
        for size in SIZES
    )
