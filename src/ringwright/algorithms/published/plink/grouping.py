"""Which hosts belong together: classical multidimensional scaling, balanced k-means, and the number of groups by plan time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.published.plink.prediction import plan_time_s

if TYPE_CHECKING:
    from ringwright.algorithms.published.plink.probing import Probes

MOST_DIMENSIONS = 16
RESTARTS, TURNS = 6, 30
MANY = 256  # beyond so many hosts k-means starts once
FLAT = 1.02  # farthest over nearest pair: below this there is nothing to cluster


def infer_groups(probes: Probes, size_bytes: float, seed: int = 0) -> list[list[int]]:
    """Return the groups, of balanced sizes, whose plan is predicted to be the fastest."""
    p = len(probes.rate)
    if p < 3:
        return [list(range(p))]
    distance = probes.distance()
    away = distance[~np.eye(p, dtype=bool)]
    flat = bool(away.max() <= away.min() * FLAT)
    points = np.arange(p, dtype=float)[:, None] if flat else coordinates(distance)
    generator = np.random.default_rng(seed)
    plans = [_clusters(points, k, generator, flat=flat) for k in candidates(p)]
    return min(plans, key=lambda groups: plan_time_s(groups, probes, size_bytes))


def candidates(p: int) -> list[int]:
    """Return the numbers of groups to try: divisors of p and powers of two."""
    return [k for k in range(1, p + 1) if p % k == 0 or (k & (k - 1) == 0 and k <= p // 2)]


def coordinates(distance: np.ndarray) -> np.ndarray:
    """Return points whose distances are near those given (Torgerson): (p, dimensions).

    float64 of shape (p, dimensions).
    """
    p = len(distance)
    centre = np.eye(p) - 1 / p
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    front = np.argsort(-values)[:MOST_DIMENSIONS]
    front = front[values[front] > 0]
    points: np.ndarray = vectors[:, front] * np.sqrt(values[front])
    return points


def _clusters(points: np.ndarray, k: int, generator: np.random.Generator, *, flat: bool) -> list[list[int]]:
    p = len(points)
    if k in (1, p) or flat:
        edges = [i * p // k for i in range(k + 1)]
        return [list(range(first, last)) for first, last in pairwise(edges)]
    tried = [_balanced_means(points, k, generator) for _ in range(RESTARTS if p <= MANY else 1)]
    label = min(tried, key=lambda found: found[0])[1]
    groups = [[int(host) for host in np.flatnonzero(label == cluster)] for cluster in range(k)]
    return sorted(groups)


def _balanced_means(points: np.ndarray, k: int, generator: np.random.Generator) -> tuple[float, np.ndarray]:
    """Return (sum of squares, cluster of each point) of k-means with clusters of p/k points, one more or less."""
    centres = _spread_out(points, k, generator)
    label = np.full(len(points), -1)
    for _ in range(TURNS if len(points) <= MANY else TURNS // 3):
        square = _squares(points, centres)
        fresh = _assign(square, k)
        if np.array_equal(fresh, label):
            break
        label = fresh
        centres = np.stack([points[label == cluster].mean(axis=0) for cluster in range(k)])
    return float(square[np.arange(len(points)), label].sum()), label


def _squares(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the squared distance of each point to each centre."""
    total = np.zeros((len(points), len(centres)))
    for axis in range(
        points.shape[1]
    ):  # not as a product of matrices, whose last digits depend on the number of threads
        total += (points[:, axis, None] - centres[:, axis]) ** 2
    return total


def _spread_out(points: np.ndarray, k: int, generator: np.random.Generator) -> np.ndarray:
    """Return first centres, each likely far from those before (k-means++)."""
    chosen = [int(generator.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    for _ in range(k - 1):
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        odds = nearest + 1e-12
        chosen.append(int(generator.choice(len(points), p=odds / odds.sum())))
    return points[chosen]


def _assign(square: np.ndarray, k: int) -> np.ndarray:
    """Return the cluster of each point, none above its size: points that would lose most by another choose first.

    p mod k clusters hold one point more: the first that are asked to.
    """
    p = len(square)
    room, spare, label = [p // k] * k, p % k, [-1] * p
    near = np.argsort(square, axis=1, kind="stable")
    least = np.take_along_axis(square, near[:, :2], axis=1)
    for point in np.argsort(least[:, 0] - least[:, 1], kind="stable").tolist():
        for cluster in near[point].tolist():
            if room[cluster] > 0 or (room[cluster] == 0 and spare > 0):
                spare -= int(room[cluster] == 0)
                room[cluster] -= 1
                label[point] = cluster
                break
    return np.array(label)
