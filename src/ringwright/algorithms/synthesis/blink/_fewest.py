"""TreeGen, second part: as few trees as nearly do, by integer programs over the trees of the packing.

Weights are whole numbers of one link first, then of halves, thirds and so on, until the rate comes near that of any weights; of
all choices that do, the one with the fewest trees, of those the one with the highest rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.searching import Deadline
from ringwright.algorithms.solving import solved
from ringwright.algorithms.synthesis.blink._packing import height_of, load_matrix
from ringwright.ground.errors import InfeasibleError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.algorithms.synthesis.blink._packing import PackingQuestion, Tree, TreePacking

PARTS = (1, 2, 3, 4, 6, 12)  # of one link, that a weight is a whole number of
MOST_CANDIDATES = 240
WORK = 0.2  # deterministic seconds of CP-SAT for each of PARTS
FINE = 1000  # parts of the largest demand
EXACT = 1e-9


@dataclass(frozen=True)
class ChosenTrees:
    """Trees with weights in bytes/s; ``rate`` of a demand of 1, ``most`` what no packing exceeds, ``of`` parts of a link.

    ``of`` is 0 where weights are no whole parts; ``packed`` how many trees were chosen among.
    """

    trees: tuple[Tree, ...]
    weights: tuple[float, ...]
    rate: float
    most: float
    packed: int
    of: int


def fewest_trees(packing: TreePacking, *, within: float, seed: int, deadline: Deadline) -> ChosenTrees:
    """Return the fewest trees whose rate is at least (1 - ``within``) times the best of any weights for the same trees.

    A deadline that has passed leaves the trees of the linear program, at most one a root and resource.
    """
    trees = sorted(packing.trees, key=lambda each: (-packing.trees[each], each))
    weights, best = best_weights(packing.question, trees)
    kept = [tree for tree, weight in zip(trees, weights, strict=True) if weight > EXACT * best]
    candidates = sorted({*kept, *trees[: max(0, MOST_CANDIDATES - len(kept))]})
    unit = min(packing.question.rates.values())
    for parts in PARTS:
        if deadline.passed():
            break
        whole = _whole(packing.question, candidates, unit / parts, best * (1 - within), seed, deadline)
        if whole is not None:
            chosen = [(tree, count * unit / parts) for tree, count in zip(candidates, whole, strict=True) if count]
            return _chosen(packing, chosen, parts)
    return _chosen(packing, [(tree, weight) for tree, weight in zip(trees, weights, strict=True) if tree in kept], 0)


def _chosen(packing: TreePacking, chosen: Sequence[tuple[Tree, float]], of: int) -> ChosenTrees:
    question = packing.question
    given = dict.fromkeys(question.roots, 0.0)
    for (root, _), weight in chosen:
        given[root] += weight
    rate = min(given[root] / demand for root, demand in zip(question.roots, question.demands, strict=True))
    trees, weights = zip(*chosen, strict=True)
    return ChosenTrees(trees, weights, rate, packing.most, len(packing.trees), of)


def best_weights(question: PackingQuestion, trees: Sequence[Tree]) -> tuple[np.ndarray, float]:
    """Return the weights of trees that give the highest rate, a vertex of the linear program, and that rate.

    Both in bytes/s, the weights float64 of shape (trees,).
    """
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtraError("blink needs SciPy's linear programs", extra="solve") from None
    loads, n = load_matrix(question, trees), len(trees)
    rates = np.array(list(question.rates.values()))
    demands = np.array(question.demands)
    owner = np.array([question.roots.index(root) for root, _ in trees])
    served = np.zeros((len(demands), n + 1))
    served[owner, np.arange(n)] = -1.0
    served[:, n] = demands
    largest = float(rates.max())
    upper = np.vstack((np.hstack((loads, np.zeros((len(rates), 1)))), served))
    limit = np.concatenate((rates / largest, np.zeros(len(demands))))
    solution = linprog(np.append(np.zeros(n), -1.0), upper, limit, method="highs-ds")
    if solution.x is None:
        raise InfeasibleError(f"the linear program of trees was not solved: {solution.message}", where="blink")
    return solution.x[:n] * largest, float(solution.x[n]) * largest


def _whole(
    question: PackingQuestion, trees: Sequence[Tree], unit: float, least: float, seed: int, deadline: Deadline
) -> list[int] | None:
    """Return whole numbers of units of each tree, few of them above 0, with at least this rate; None where none were found."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingExtraError("blink needs integer programs", extra="solve") from None
    limits = [math.floor(rate / unit + EXACT) for rate in question.rates.values()]
    loads = load_matrix(question, trees).astype(int)
    largest = max(question.demands)
    least_units = math.ceil(least * largest / unit - EXACT)
    most_units = max(least_units, *(limit * len(limits) for limit in limits))
    model = cp_model.CpModel()
    counts, taken = [], []
    for column in range(len(trees)):
        most = min(limit // int(times) for limit, times in zip(limits, loads[:, column], strict=True) if times)
        counts.append(model.new_int_var(0, most, ""))
        taken.append(model.new_bool_var(""))
        model.add(counts[-1] <= most * taken[-1])
    for row, limit in enumerate(limits):
        used = np.flatnonzero(loads[row])
        if len(used):
            model.add(sum(int(loads[row, each]) * counts[each] for each in used.tolist()) <= limit)
    rate = model.new_int_var(least_units, most_units, "rate")
    for root, demand in zip(question.roots, question.demands, strict=True):
        own = [counts[each] for each, tree in enumerate(trees) if tree[0] == root]
        model.add(FINE * sum(own) >= math.ceil(FINE * demand / largest - EXACT) * rate)
    heights = [height_of(question, tree) for tree in trees]
    first = len(question.ranks) * len(trees)  # more than all heights together
    each_tree = (first * (most_units + 1) + height for height in heights)
    model.minimize(sum(cost * one for cost, one in zip(each_tree, taken, strict=True)) - first * rate)
    solver, status = solved(model, WORK, seed, deadline)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [int(solver.value(each)) for each in counts]
