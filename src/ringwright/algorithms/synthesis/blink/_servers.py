"""Several servers in three phases: within each by its own trees, between those GPUs that meet their like, within each again.

A *journey* is a part of a root's block that enters every other server by one gate. What it passes is one tree: the root's own
tree in its server, an arc to each other server, and the trees of the gates there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.blink._packing import Tree
    from ringwright.algorithms.synthesis.blink._wiring import JobWiring

Share = tuple[tuple[int, ...], float]  # arcs of a tree, and its part of what its root sends
DIGITS = 12  # of parts that count as equal


@dataclass(frozen=True)
class Journey:
    """A part of the block of ``root``, and by which gate of each other host it enters; the gate of a single host is -1."""

    root: int
    gate: int
    part: float


def journeys(op: str, root: int, wiring: JobWiring) -> list[Journey]:
    """Return how the data of an operation go: by which gates, from which roots; parts of a root add up to 1."""
    columns = len(wiring.gates[0]) if wiring.gates else 0
    if op == "all-reduce":
        return [Journey(row[gate], gate, 1.0) for row in wiring.gates for gate in range(columns)]
    if op in ("all-gather", "reduce-scatter"):
        return [
            Journey(rank, _nearest(wiring, number, rank), 1.0)
            for number, host in enumerate(wiring.hosts)
            for rank in host.ranks
        ]
    return [Journey(root, gate, 1 / columns) for gate in range(columns)] or [Journey(root, -1, 1.0)]


def _nearest(wiring: JobWiring, host: int, rank: int) -> int:
    """Return the gate of a rank: itself where it is one, else one of those of its host, in turn."""
    if not wiring.gates:
        return -1
    row = wiring.gates[host]
    return row.index(rank) if rank in row else wiring.hosts[host].ranks.index(rank) % len(row)


def local_root(wiring: JobWiring, journey: Journey, host: int) -> int:
    """Return from which rank of a host a journey spreads there."""
    return journey.root if wiring.host_of[journey.root] == host else wiring.gates[host][journey.gate]


def local_demands(wiring: JobWiring, every: Sequence[Journey], weight: Sequence[float], host: int) -> dict[int, float]:
    """Return how much each rank of a host spreads there; ``weight`` is of each place's block."""
    demand: dict[int, float] = {}
    for journey in every:
        root = local_root(wiring, journey, host)
        demand[root] = demand.get(root, 0.0) + journey.part * weight[journey.root]
    return dict(sorted(demand.items()))


def composed(
    wiring: JobWiring, every: Sequence[Journey], local: Sequence[dict[int, list[Share]]]
) -> list[tuple[Tree, float]]:
    """Return whole trees with their parts of their root's block: for each stretch of a journey a tree of each host, joined.

    ``local`` are of each host the trees of its roots, with parts that add up to 1.
    """
    made: dict[Tree, float] = {}
    for journey in every:
        home = wiring.host_of[journey.root]
        cross = [
            wiring.number[wiring.gates[home][journey.gate], wiring.gates[host][journey.gate]]
            for host in range(len(wiring.hosts))
            if host != home
        ]
        rows = [local[host][local_root(wiring, journey, host)] for host in range(len(wiring.hosts))]
        for arcs, stretch in _stretches(rows):
            tree = (journey.root, tuple(sorted((*arcs, *cross))))
            made[tree] = made.get(tree, 0.0) + stretch * journey.part
    return list(made.items())


def _stretches(rows: Sequence[Sequence[Share]]) -> list[Share]:
    """Return the arcs of all rows together over each stretch from 0 to 1 in which no row changes its tree."""
    ends = []
    for row in rows:
        total = 0.0
        for _, part in row[:-1]:
            total += part
            ends.append(round(total, DIGITS))
    points = sorted({0.0, 1.0, *ends})
    made: list[Share] = []
    for begin, end in pairwise(points):
        arcs: list[int] = []
        for row in rows:
            total = 0.0
            for own, part in row:
                total += part
                if (begin + end) / 2 <= total or own is row[-1][0]:
                    arcs += own
                    break
        made.append((tuple(arcs), end - begin))
    return made
