"""Keyed data: records that are added where their keys are equal, and how much of them is left when some have met.

A Collective carries dense vectors, and a Program moves chunks of them: their sum is as long as one of them. Records with keys
are not: m workers' records shrink to the union of their keys. What they *are* is exact here, on NumPy arrays of whole
numbers; what they *take* is a formula, ``left_bytes``, for one ratio of the result to all input. Programs are not asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class KeyedPairs:
    """Records: ``keys`` and ``values`` are int64 of shape (records,)."""

    keys: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)


def joined(every: Iterable[KeyedPairs]) -> KeyedPairs:
    """Return the records of all, one behind the other."""
    parts = list(every)
    none = np.zeros(0, np.int64)
    return KeyedPairs(
        np.concatenate([none, *(each.keys for each in parts)]), np.concatenate([none, *(each.values for each in parts)])
    )


def summed(pairs: KeyedPairs) -> KeyedPairs:
    """Return one record for each key, in rising order, its value the exact sum of all values of the key."""
    keys, which = np.unique(pairs.keys, return_inverse=True)
    values = np.zeros(len(keys), np.int64)
    np.add.at(values, which.ravel(), pairs.values)
    return KeyedPairs(keys, values)


def best(pairs: KeyedPairs, k: int) -> KeyedPairs:
    """Return the k records of the largest values, of equal ones those of the smaller keys; fewer where there are fewer.

    Best of bests is best of all, whatever was merged first: the aggregate of a search (NetAgg, CoNEXT 2014).
    """
    order = np.lexsort((pairs.keys, -pairs.values))[: max(k, 0)]
    return KeyedPairs(pairs.keys[order], pairs.values[order])


def left_bytes(inputs: float, of: int, each_bytes: float, ratio: float) -> float:
    """Return the bytes of what is left of ``inputs`` workers' records when they have met, ``each_bytes`` of each of ``of``.

    ``ratio`` is the size of the whole result over that of all input, 1/of (each result as long as one input, as in a sum of
    vectors) to 1 (nothing is combined). Until the result's size is reached nothing can be told of which keys meet: it is
    taken that none do. Raises UsageError for a ratio outside.
    """
    if not 1 / of - 1e-12 <= ratio <= 1:
        raise UsageError(f"a ratio of {ratio:g} over {of} inputs", remedy=f"from {1 / of:g} to 1")
    return each_bytes * min(inputs, max(1.0, ratio * of))
