"""A pattern search: the minimum of a function of a few numbers, without derivatives and without random numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

MOST_STEPS = 400
SMALLEST_STEP = 1e-3
SMALLEST_GAIN = 1e-9


def descend(
    loss: Callable[[np.ndarray], np.ndarray], start: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Return a local minimum of ``loss``: no step up or down of one number, or of two at once, lowers it.

    float64 of shape (numbers,).
    """
    unit = np.eye(len(start))
    pairs = [unit[i] + sign * unit[j] for i, j in combinations(range(len(start)), 2) for sign in (1, -1)]
    directions = np.array([*unit, *pairs])
    directions = np.concatenate((directions, -directions))
    here, value, step = start, float(loss(start[None])[0]), 1.0
    for _ in range(MOST_STEPS):
        candidates = np.clip(here + directions * step, low, high)
        values = loss(candidates)
        best = int(values.argmin())
        if values[best] < value - SMALLEST_GAIN:
            here, value, step = candidates[best], float(values[best]), min(1.0, step * 1.3)
            continue
        step *= 0.6
        if step < SMALLEST_STEP:
            break
    return here
