"""Which trees there are to choose from: packed ones, with such over PCIe beside them, and those of one hop."""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.synthesis.blink import _servers
from ringwright.algorithms.synthesis.blink._data import GATHERING, TreesOfData
from ringwright.algorithms.synthesis.blink._fewest import ChosenTrees, fewest_trees
from ringwright.algorithms.synthesis.blink._forests import busy_s, depths, forests_of, hung_up, one_hop
from ringwright.algorithms.synthesis.blink._packing import packed_trees, question_of
from ringwright.algorithms.synthesis.blink._wiring import job_wiring
from ringwright.bounds.lower_bounds import bounds
from ringwright.ground.units import GIB
from ringwright.model.collective import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.blink._packing import Tree
    from ringwright.algorithms.synthesis.blink._servers import Share
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

MOST_KNOWN = 256
_KNOWN: OrderedDict[tuple[object, ...], ChosenTrees] = OrderedDict()  # trees that were packed in this process


@dataclass(frozen=True)
class BlinkPlan:
    """Trees of a collective; ``method`` says which, ``packed`` how many trees the first part made them from (0: none).

    ``most`` are bytes/s that no trees on the same links exceed, as the first part proves.
    """

    method: str
    data: TreesOfData
    packed: int = 0
    most: float = math.inf

    @property
    def rate(self) -> float:
        """Bytes/s of the data at the most loaded resource, whatever latencies and chunks are; 0 for no data."""
        return float(self.data.collective.size_bytes / busy_s(self.data.forests))

    @property
    def trees(self) -> int:
        """Trees of all roots."""
        return len(self.data.forests[0].roots)

    @property
    def height(self) -> int:
        """Arcs on the longest branch."""
        return max(each.height for each in self.data.forests)


@dataclass(frozen=True)
class Effort:
    """How trees are sought: within which part of the best, at which seed, until when; ``peer_off_s``: see ``beside_pcie``."""

    epsilon: float
    within: float
    seed: int
    deadline: Deadline
    peer_off_s: float


class Planner:
    """A collective on a machine, and the plans for it."""

    def __init__(self, collective: Collective, topology: Topology, effort: Effort) -> None:
        self.collective, self.topology, self.effort = collective, topology, effort
        wiring = job_wiring(topology, collective.group)
        self.collects = collective.op in ("reduce", "reduce-scatter", "gather")
        self.wiring = wiring.turned_round() if self.collects else wiring
        self.duplex = collective.op == "all-reduce"
        self.own_roots = collective.op in ("all-gather", "reduce-scatter")

    def weight(self, roots: Sequence[int]) -> np.ndarray:
        """Return the bytes of each place's block, at least a little where any has some. float64 of shape (places,)."""
        p, weight = self.collective.p, np.zeros(self.collective.p)
        if self.own_roots:
            blocks = np.resize(self.collective.block_bytes, p)
            if np.ptp(blocks) <= 2 * self.collective.unit_bytes:
                return np.full(p, max(1.0, float(blocks.max())))
            return np.maximum(blocks, max(1, int(blocks.max()) >> 20)).astype(float)
        weight[list(roots)] = max(self.collective.size_bytes, 1) / len(roots)
        return weight

    def blocks(self, roots: Sequence[int]) -> np.ndarray:
        """Return the bytes of each root's block in the order of the roots. int64 of shape (roots,)."""
        if self.own_roots or self.collective.op in GATHERING:
            return np.resize(self.collective.block_bytes, self.collective.p)
        return split(self.collective.size_bytes, len(roots), self.collective.unit_bytes)

    def planned(
        self, method: str, trees: Sequence[tuple[Tree, float]], chosen: Sequence[ChosenTrees] = ()
    ) -> BlinkPlan:
        """Return the plan for trees with parts of their root's block."""
        roots = sorted({root for (root, _), _ in trees})
        forests = forests_of(self.wiring.arcs, trees, self.weight(roots), duplex=self.duplex)
        data = TreesOfData(self.collective, forests, self.blocks(roots))
        most = chosen[0].most * self.times if method == "packed" else math.inf
        return BlinkPlan(method, data, sum(each.packed for each in chosen), most)

    @property
    def times(self) -> float:
        """Bytes of all data over those of the largest block that a root sends."""
        return float(self.collective.size_bytes / self.weight([0]).max()) if self.own_roots else 1.0

    def least_s(self) -> float:
        """Return seconds that nothing is faster than for 1 GiB, by the cuts that the machine suggests; 0 for uneven blocks."""
        if self.collective.counts is not None:
            return 0.0
        asked = dataclasses.replace(self.collective, size_bytes=GIB)
        every = bounds(asked, self.topology, exact=False)
        return max((each.time_s for each in every if each.kind != "distance"), default=0.0)

    # --------------------------------------------------------------------------------------------------------- trees of one hop
    def one_hop(self) -> BlinkPlan | None:
        """Return the plan of one hop between any two ranks; None where they have no arcs, or on several hosts."""
        if self.wiring.gates:
            return None
        rooted = None if self.own_roots or self.duplex else self.collective.root
        trees = one_hop(self.wiring.number, self.collective.p, rooted)
        return None if trees is None else self.planned("one-hop", trees)

    def is_near(self, plan: BlinkPlan) -> bool:
        """Return whether no trees can be much faster, whatever the size: every rank sends its own to all others."""
        if not (self.own_roots or self.duplex):
            return False
        size = max(self.collective.size_bytes, 1)
        return busy_s(plan.data.forests) / size * GIB * (1 - self.effort.within) <= self.least_s()

    # ------------------------------------------------------------------------------------------------------------- packed trees
    def packed(self) -> list[BlinkPlan]:
        """Return the plan of packed trees, and that with trees over PCIe beside them where the machine has such links."""
        every = _servers.journeys(self.collective.op, self.collective.root, self.wiring)
        if not self.wiring.gates:
            return self._of_one_host([each.root for each in every])
        weight = self.weight([each.root for each in every])
        chosen: list[ChosenTrees] = []
        local: list[dict[int, list[Share]]] = []
        for number, host in enumerate(self.wiring.hosts):
            demand = _servers.local_demands(self.wiring, every, weight.tolist(), number)
            if len(host.ranks) == 1:
                local.append({host.ranks[0]: [((), 1.0)]})
                continue
            chosen.append(self._chosen(host.ranks, host.every, demand))
            local.append(_parts(chosen[-1]))
        return [self.planned("three phases", _servers.composed(self.wiring, every, local), chosen)]

    def _of_one_host(self, roots: list[int]) -> list[BlinkPlan]:
        host, weight = self.wiring.hosts[0], self.weight(roots or [0])
        if self.duplex:
            roots = [self.collective.root]
        demand = {root: float(weight[root]) for root in roots} if self.own_roots else {roots[0]: 1.0}
        quick = self._chosen(host.ranks, host.quick, demand)
        plans = [self.planned("packed", self._parted(quick), [quick])]
        if host.slow and (slow := self._beside(demand)) is not None:
            size = max(demand.values()) if self.own_roots else self.collective.size_bytes
            part = beside_pcie(
                size, quick.rate * max(demand.values()), slow.rate * max(demand.values()), self.effort.peer_off_s
            )
            if part > 0:
                both = [*((tree, each * (1 - part)) for tree, each in self._parted(quick))]
                both += [(tree, each * part) for tree, each in self._parted(slow)]
                plans.append(self.planned("packed, PCIe beside", both, [quick]))
        return plans

    def _beside(self, demand: dict[int, float]) -> ChosenTrees | None:
        """Return trees over PCIe alone; None where they do not reach all."""
        from ringwright.algorithms.synthesis.blink._wiring import is_joined

        host = self.wiring.hosts[0]
        if not is_joined(self.wiring.arcs, host.ranks, host.slow):
            return None
        return self._chosen(host.ranks, host.slow, demand)

    def _parted(self, chosen: ChosenTrees) -> list[tuple[Tree, float]]:
        """Return trees with parts of their root's block; where data go up and down, hung up so that they are low."""
        trees = [((root, arcs), part) for root, shares in _parts(chosen).items() for arcs, part in shares]
        if not self.duplex:
            return trees
        made = self.wiring.arcs
        hung = [hung_up(made, arcs, self.wiring.number) for (_, arcs), _ in trees]
        high = {root: max(int(depths(made, root, each[root]).max()) for each in hung) for root in hung[0]}
        root = min(high, key=lambda each: (high[each], each))
        return [((root, each[root]), part) for each, (_, part) in zip(hung, trees, strict=True)]

    def _chosen(self, ranks: Sequence[int], numbers: Sequence[int], demand: dict[int, float]) -> ChosenTrees:
        """Return few trees for roots and demands on arcs of these numbers, from memory where they are known."""
        effort, largest = self.effort, max(demand.values())
        demand = {root: each / largest for root, each in demand.items()}
        asked = (self.wiring.arcs.digest(), tuple(numbers), tuple(demand.items()), self.duplex)
        key = (*asked, effort.epsilon, effort.within, effort.seed)
        if key not in _KNOWN:
            question = question_of(self.wiring, ranks, numbers, demand, duplex=self.duplex)
            packing = packed_trees(question, epsilon=effort.epsilon, must_stop=effort.deadline.passed)
            chosen = fewest_trees(packing, within=effort.within, seed=effort.seed, deadline=effort.deadline)
            if effort.deadline.stopped:
                return chosen
            _KNOWN[key] = chosen
            if len(_KNOWN) > MOST_KNOWN:
                _KNOWN.popitem(last=False)
        return _KNOWN[key]


def _parts(chosen: ChosenTrees) -> dict[int, list[Share]]:
    """Return of each root its trees with their parts of what it sends."""
    total: dict[int, float] = {}
    for (root, _), weight in zip(chosen.trees, chosen.weights, strict=True):
        total[root] = total.get(root, 0.0) + weight
    parts: dict[int, list[Share]] = {root: [] for root in total}
    for (root, arcs), weight in zip(chosen.trees, chosen.weights, strict=True):
        parts[root].append((arcs, weight / total[root]))
    return parts


def beside_pcie(size_bytes: float, quick: float, slow: float, peer_off_s: float) -> float:
    """Return the part of the data that goes over PCIe so that both end together; 0 where NVLink alone is as fast.

    ``quick`` and ``slow`` are bytes/s of the trees of each, ``peer_off_s`` the seconds until PCIe can begin (peer access has to
    be switched off): D_pcie / slow + peer_off_s = (D - D_pcie) / quick.
    """
    both = quick + slow
    return max(0.0, slow / both - peer_off_s * quick * slow / both / max(size_bytes, 1))
