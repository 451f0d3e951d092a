"""TreeGen, first part: a fractional packing of trees by multiplicative weights (Garg and Konemann 1998).

Every resource has a length, high where trees have used it. Again and again the tree that is shortest at these lengths gets as
much as its narrowest resource takes, and what it uses gets longer. Lengths prove how much there can be at the most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.bounds.cheapest_trees import least_tree
from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.blink._wiring import JobWiring

Tree = tuple[int, tuple[int, ...]]  # root, and arcs by number
Load = dict[int, int]  # how often each resource is used


@dataclass(frozen=True)
class PackingQuestion:
    """Roots with demands (their parts of the data), on some arcs between some ranks.

    ``uses`` are of each arc its resources and how often a byte down a tree uses each; ``rates`` bytes/s of each resource.
    """

    ranks: tuple[int, ...]
    numbers: tuple[int, ...]
    ends: tuple[tuple[int, int], ...]
    uses: tuple[tuple[tuple[int, int], ...], ...]
    rates: dict[int, float]
    roots: tuple[int, ...]
    demands: tuple[float, ...]

    @cached_property
    def at(self) -> dict[int, int]:
        """Where each arc stands among those of the question, by its number."""
        return {number: each for each, number in enumerate(self.numbers)}

    def load(self, tree: Tree) -> Load:
        """Return what a tree uses."""
        used: Load = {}
        for number in tree[1]:
            for resource, times in self.uses[self.at[number]]:
                used[resource] = used.get(resource, 0) + times
        return used


def question_of(
    wiring: JobWiring, ranks: Sequence[int], numbers: Sequence[int], demand: dict[int, float], *, duplex: bool
) -> PackingQuestion:
    """Return the question for roots and their demands; an arc without one back is left out where data go both ways."""
    made = wiring.arcs
    seat = {rank: number for number, rank in enumerate(ranks)}
    kept: list[int] = []
    uses: list[tuple[tuple[int, int], ...]] = []
    for number in numbers:
        back = wiring.back[number] if duplex else number
        if back < 0:
            continue
        used = made.resources[made.starts[number] : made.starts[number + 1]].tolist()
        if duplex:
            used += made.resources[made.starts[back] : made.starts[back + 1]].tolist()
        kept.append(number)
        uses.append(tuple((resource, used.count(resource)) for resource in sorted(set(used))))
    ends = tuple((seat[int(made.src[number])], seat[int(made.dst[number])]) for number in kept)
    rates = {resource: float(made.rate[resource]) for used in uses for resource, _ in used}
    return PackingQuestion(tuple(ranks), tuple(kept), ends, tuple(uses), rates, tuple(demand), tuple(demand.values()))


@dataclass
class TreePacking:
    """Trees with weights in bytes/s, so that no resource carries more than its rate; ``rate``: of a demand of 1.

    ``most`` is the rate that no packing exceeds, as the lengths prove; ``trees`` are in the order in which they came.
    """

    question: PackingQuestion
    trees: dict[Tree, float] = field(default_factory=dict)
    rate: float = 0.0
    most: float = math.inf


def packed_trees(question: PackingQuestion, *, epsilon: float, must_stop: Callable[[], bool]) -> TreePacking:
    """Return a packing at least (1 - ``epsilon``) as good as the best, unless it had to stop.

    It ends as soon as its own lengths prove that; by the theorem at the latest, when lengths times rates are 1. Raises
    InfeasibleError where no tree reaches all.
    """
    return _Weights(question, epsilon).run(must_stop)


class _Weights:
    """Lengths of resources and what trees have put on them so far."""

    def __init__(self, question: PackingQuestion, epsilon: float) -> None:
        self.question, self.epsilon = question, epsilon
        delta = (max(len(question.rates), 1) / (1 - epsilon)) ** (-1 / epsilon)
        self.length = {resource: delta / rate for resource, rate in question.rates.items()}
        self.load = dict.fromkeys(question.rates, 0.0)
        self.packing = TreePacking(question)
        self.known: dict[Tree, Load] = {}
        self.served = self.scale = 0.0

    def run(self, must_stop: Callable[[], bool]) -> TreePacking:
        """Let every root send its part, round by round, until it is proved or has to end."""
        packing, rates = self.packing, self.question.rates
        while True:
            self._round()
            total = sum(self.length[resource] * rate for resource, rate in rates.items())
            packing.most = min(packing.most, total / self.cost)
            fullest = max(load / rates[resource] for resource, load in self.load.items())
            packing.rate = self.served / fullest
            if packing.rate >= (1 - self.epsilon) * packing.most or total >= 1 or must_stop():
                break
        packing.trees = {tree: weight / fullest for tree, weight in packing.trees.items()}
        return packing

    def _round(self) -> None:
        """Send every root's part; ``cost`` is what shortest trees cost for a demand of 1, at lengths that have since grown."""
        self.cost = 0.0
        for root, demand in zip(self.question.roots, self.question.demands, strict=True):
            left = math.inf
            while left > 0:
                tree, cost = self._shortest(root)
                if tree not in self.known:
                    self.known[tree] = self.question.load(tree)
                used = self.known[tree]
                narrow = min(self.question.rates[each] / times for each, times in used.items())
                self.scale = self.scale or narrow / max(self.question.demands)
                if left == math.inf:
                    self.cost += demand * cost
                    left = demand * self.scale
                sent = min(narrow, left)
                left = 0.0 if sent == left else left - sent
                self._use(tree, used, sent)
        self.served += self.scale

    def _shortest(self, root: int) -> tuple[Tree, float]:
        """Return the tree from a root that costs least at the lengths now, and what it costs."""
        question = self.question
        prices = [sum(self.length[each] * times for each, times in used) for used in question.uses]
        chosen = least_tree(len(question.ranks), question.ranks.index(root), question.ends, prices)
        if chosen is None:
            raise InfeasibleError(
                f"no tree leads from rank {root} of the group to all others",
                where=f"{len(question.ranks)} ranks, {len(question.ends)} arcs",
                remedy="--method forest, or ringwright bound broadcast --topology FILE",
            )
        return (root, tuple(question.numbers[each] for each in chosen)), sum(prices[each] for each in chosen)

    def _use(self, tree: Tree, used: Load, sent: float) -> None:
        self.packing.trees[tree] = self.packing.trees.get(tree, 0.0) + sent
        for resource, times in used.items():
            self.length[resource] *= 1 + self.epsilon * sent * times / self.question.rates[resource]
            self.load[resource] += sent * times


def height_of(question: PackingQuestion, tree: Tree) -> int:
    """Return the arcs on the longest branch of a tree."""
    above = {question.ends[question.at[number]][1]: question.ends[question.at[number]][0] for number in tree[1]}
    height = 0
    for end in above:
        far, here = 0, end
        while here in above:
            here, far = above[here], far + 1
        height = max(height, far)
    return height


def load_matrix(question: PackingQuestion, trees: Sequence[Tree]) -> np.ndarray:
    """Return how often each tree uses each resource, in the order of ``question.rates``; float64 of shape (resources, trees)."""
    at = {resource: number for number, resource in enumerate(question.rates)}
    matrix = np.zeros((len(at), len(trees)))
    for column, tree in enumerate(trees):
        for resource, times in question.load(tree).items():
            matrix[at[resource], column] = times
    return matrix
