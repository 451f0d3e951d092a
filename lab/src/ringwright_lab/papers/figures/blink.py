"""Blink's figures: trees against rings on every part of a DGX-1, one hop against NCCL on a DGX-2, and what packing gives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, permutations

import numpy as np

from ringwright.algorithms.searching import Deadline
from ringwright.algorithms.synthesis.blink import blink
from ringwright.algorithms.synthesis.blink._data import TreesOfData, chunk_by_chunk
from ringwright.algorithms.synthesis.blink._forests import forests_of
from ringwright.algorithms.synthesis.blink._packing import packed_trees, question_of
from ringwright.algorithms.synthesis.blink._plans import Effort, Planner
from ringwright.algorithms.synthesis.blink._wiring import JobWiring, job_wiring
from ringwright.bounds.forests import Forest
from ringwright.bounds.maxflow import FlowNetwork
from ringwright.engines.choose import simulate
from ringwright.engines.machine import machine
from ringwright.fabrics import fabric
from ringwright.fabrics._parts import MACHINES, Nvlinks, between, connected_parts, part
from ringwright.ground.units import parse_size
from ringwright.model.collective import Collective, split
from ringwright.model.program import Program
from ringwright.model.registry import algorithm as algorithm_named
from ringwright.model.topology import Topology

SIZE_BYTES, CHUNKS = 256 << 20, 64
EPSILON = 0.05
Ring = tuple[int, ...]


@dataclass(frozen=True)
class PartOutcome:
    """What one part of a DGX-1 gives for a collective.

    ``rings`` counts those over NVLink (0: PCIe), ``rate_gbs`` and ``trees`` are of the packed trees, times in us.
    """

    gpu: str
    gpus: tuple[int, ...]
    rings: int
    trees: int
    rate_gbs: float
    rings_us: float
    trees_us: float

    @property
    def gain(self) -> float:
        """How many times shorter trees take than rings."""
        return self.rings_us / self.trees_us


def parts(gpu: str) -> int:
    """Return how many parts of 3 to 8 GPUs a DGX-1 has that NVLinks join and that do not look the same."""
    return len(connected_parts(MACHINES[gpu][0]))


def largest_gain(op: str, gpus: Sequence[str], algorithm: str = "trees") -> float:
    """Return the largest gain over rings on all parts of DGX-1 with these GPUs; ``rings`` as algorithm are their own baseline."""
    return max(_gains(op, gpus, algorithm))


def average_gain(op: str, gpus: Sequence[str], algorithm: str = "trees") -> float:
    """Return the geometric mean of the gains on all parts."""
    gains = _gains(op, gpus, algorithm)
    return math.exp(sum(map(math.log, gains)) / len(gains))


def _gains(op: str, gpus: Sequence[str], algorithm: str) -> list[float]:
    every = [(gpu, chosen) for gpu in gpus for chosen in connected_parts(MACHINES[gpu][0])]
    return [1.0 if algorithm == "rings" else outcome(op, *each).gain for each in every]


@cache
def outcome(op: str, gpu: str, chosen: tuple[int, ...]) -> PartOutcome:
    """Return what trees and rings take for a collective on a part of a DGX-1; chunks and size are those of this module."""
    machine_of_part = part(gpu, chosen)
    collective = Collective(op, range(len(chosen)), SIZE_BYTES)
    links = between(MACHINES[gpu][0], chosen)
    planner = Planner(collective, machine_of_part, Effort(EPSILON, EPSILON, 0, Deadline(None), 0.0))
    plan = planner.packed()[0]
    rings = disjoint_rings(links, len(chosen))
    under_rings = part(gpu, chosen, nvlink=bool(rings))
    by_rings = ring_data(collective, job_wiring(under_rings, collective.group), rings)
    times = [
        taken_us(chunk_by_chunk(data.program(CHUNKS), machine(where)), where)
        for data, where in ((by_rings, under_rings), (plan.data, machine_of_part))
    ]
    return PartOutcome(gpu, chosen, len(rings), plan.trees, plan.rate / 1e9, *times)


def taken_us(program: Program, topology: Topology) -> float:
    """Return the microseconds that a program takes in the engine."""
    return simulate(program, topology).time_s * 1e6


def disjoint_rings(links: Nvlinks, size: int) -> list[Ring]:
    """Return as many rings through all GPUs as no NVLink is needed for twice, the first of such sets."""
    rings = [(0, *rest) for rest in permutations(range(1, size)) if rest[0] < rest[-1] and _free(links, (0, *rest))]

    def most(left: Mapping[tuple[int, int], int], first: int) -> list[Ring]:
        best: list[Ring] = []
        bound = min(sum(count for ends, count in left.items() if gpu in ends) // 2 for gpu in range(size))
        for at in range(first, len(rings)):
            if len(best) >= bound:
                break
            if _free(left, rings[at]):
                used = _hops(rings[at])
                rest = {ends: count - used.count(ends) for ends, count in left.items()}
                best = max(best, [rings[at], *most(rest, at)], key=len)
        return best

    return most(links, 0)


def _hops(ring: Ring) -> list[tuple[int, int]]:
    """Return the pairs of a ring, the lower number first."""
    return [(min(a, b), max(a, b)) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)]


def _free(links: Mapping[tuple[int, int], int], ring: Ring) -> bool:
    return all(links.get(hop, 0) > 0 for hop in _hops(ring))


def ring_data(collective: Collective, wiring: JobWiring, rings: Sequence[Ring]) -> TreesOfData:
    """Return a collective along rings, each in both directions; without any along one in the order of the ranks."""
    p = collective.p
    directed = [turned for ring in rings for turned in (ring, ring[::-1])] or [tuple(range(p))]
    number, each = wiring.number, 1 / len(directed)
    if collective.op == "broadcast":
        trees = [((collective.root, _chain(number, ring, collective.root, 1)), each) for ring in directed]
        weight = np.zeros(p)
        weight[collective.root] = collective.size_bytes
        return TreesOfData(
            collective, forests_of(wiring.arcs, trees, weight, duplex=False), np.array([collective.size_bytes])
        )
    blocks = split(collective.size_bytes, p, collective.unit_bytes)
    phases: list[Forest] = []
    for direction in (-1, 1):
        made = wiring if direction > 0 else wiring.turned_round()
        trees = [((root, _chain(made.number, ring, root, direction)), each) for root in range(p) for ring in directed]
        phases += forests_of(made.arcs, trees, blocks.astype(float), duplex=False)
    return TreesOfData(collective, tuple(phases), blocks)


def _chain(number: Mapping[tuple[int, int], int], ring: Ring, root: int, step: int) -> tuple[int, ...]:
    """Return the arcs from a root along a ring, or against it, to all others; the ring's last hop stays free."""
    p, at = len(ring), ring.index(root)
    stops = [ring[(at + step * far) % p] for far in range(p)]
    return tuple(number[hop] for hop in pairwise(stops))


# ------------------------------------------------------------------------------------------------------------------------- DGX-2
def dgx2_gain(sizes: Sequence[str], algorithm: str = "blink") -> float:
    """Return the largest gain over NCCL 2.4 in an all-reduce of 16 GPUs; a message of either costs what NCCL's tables say."""
    return max(_dgx2_us("nccl", size) / _dgx2_us("nccl" if algorithm == "nccl" else "blink", size) for size in sizes)


@cache
def _dgx2_us(who: str, size: str) -> float:
    topology = fabric("dgx-2:1")
    collective = Collective("all-reduce", range(topology.n_ranks), parse_size(size))
    _, make, knobs = algorithm_named("nccl-2-4:release=2.4")
    program = make(collective, topology, **knobs)
    if who == "blink":
        software = dataclasses.replace(program.software, byte_s={})  # the work of NCCL's channels, which it has none of
        program = dataclasses.replace(blink(collective, topology), software=software)
    return taken_us(program, topology)


# ------------------------------------------------------------------------------------------------------------------ the packing
def whole_rate() -> float:
    """Return the rate of a broadcast's trees on all eight V100, in NVLinks."""
    return round(_whole()[0] / MACHINES["v100"][1], 9)


def whole_trees() -> int:
    """Return the trees of a broadcast on all eight V100."""
    return _whole()[1]


@cache
def _whole() -> tuple[float, int]:
    every = tuple(range(8))
    seen = outcome("broadcast", "v100", every)
    return seen.rate_gbs * 1e9, seen.trees


def least_share(epsilon: float = EPSILON) -> float:
    """Return the smallest rate of a packing over the tightest cut between a root and any other GPU: all parts, all roots."""
    return min(
        share_of_cut(gpu, chosen, root, epsilon)
        for gpu, (links, _) in MACHINES.items()
        for chosen in connected_parts(links)
        for root in range(len(chosen))
    )


def share_of_cut(gpu: str, chosen: Sequence[int], root: int, epsilon: float = EPSILON) -> float:
    """Return the rate of a root's packing over NVLinks on a part of a DGX-1, in parts of the tightest cut."""
    links, rate = MACHINES[gpu]
    size, own = len(chosen), between(links, chosen)
    wiring = job_wiring(part(gpu, chosen), range(size))
    host = wiring.hosts[0]
    question = question_of(wiring, host.ranks, host.quick, {root: 1.0}, duplex=False)
    packing = packed_trees(question, epsilon=epsilon, must_stop=lambda: False)
    both = {pair: count for (a, b), count in own.items() for pair in ((a, b), (b, a))}
    cuts = []
    for other in range(size):
        if other != root:
            network = FlowNetwork(size, both)
            cuts.append(network.push(root, other, sum(both.values())))
    return packing.rate / (min(cuts) * rate)
