"""Unions and intersections of intervals, as NumPy arrays of starts and ends in one unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Spans = tuple[np.ndarray, np.ndarray]


def union(starts: np.ndarray, ends: np.ndarray) -> Spans:
    """Return the union as disjoint spans in order; touching ones are joined."""
    import numpy as np

    if not len(starts):
        return np.zeros(0), np.zeros(0)
    order = np.argsort(starts, kind="stable")
    begin, reach = starts[order], np.maximum.accumulate(ends[order])
    is_first = np.concatenate(([True], begin[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(is_first)[1:] - 1, [len(begin) - 1]))
    return begin[is_first], reach[last]


def length(spans: Spans) -> float:
    """Return the sum of the lengths of disjoint spans."""
    return float((spans[1] - spans[0]).sum())


def covered(spans: Spans, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return, per interval asked for, how much of it the disjoint ``spans`` cover.

    float64 of shape (intervals,), in the unit of the spans.
    """
    import numpy as np

    if not len(spans[0]) or not len(starts):
        return np.zeros(len(starts))
    before = np.concatenate(([0.0], np.cumsum(spans[1] - spans[0])))

    def filled(moments: np.ndarray) -> np.ndarray:
        index = np.searchsorted(spans[0], moments, side="right")
        reach = np.minimum(moments, spans[1][np.maximum(index - 1, 0)]) - spans[0][np.maximum(index - 1, 0)]
        sums: np.ndarray = np.where(index > 0, before[np.maximum(index - 1, 0)] + reach, 0.0)
        return sums

    amounts: np.ndarray = filled(ends) - filled(starts)
    return amounts
