"""Where the clock of a GPU stands against the clock of its host.

A kernel starts after the host enqueued it, and ends before the host saw its end: every operation bounds the offset between
the clocks from both sides. The line that fits between all bounds is taken; half the gap is the uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Times = np.ndarray[Any, np.dtype[np.int64]]

_BINS = 64
_SPAN_FOR_SLOPE_NS = 1_000_000_000
_MOST_SLOPE = 1e-3  # a quartz is never that wrong


@dataclass(frozen=True)
class GpuClock:
    """Host time = GPU time - offset - slope x (GPU time - ``at_ns``), good to ``uncertainty_ns`` either way."""

    at_ns: int
    offset_ns: int
    slope: float
    uncertainty_ns: float

    def to_host(self, gpu_ns: Times) -> Times:
        """Return host times (ns, monotonic) of GPU times (ns)."""
        drift: Times = np.rint(self.slope * (gpu_ns - self.at_ns)).astype(np.int64)
        host: Times = gpu_ns - self.offset_ns - drift
        return host


def fit(
    enqueue_ns: Times, gpu_start_ns: Times, gpu_stop_ns: Times, seen_start_ns: Times, seen_stop_ns: Times
) -> GpuClock:
    """Return the clock of one GPU from its operations (all times in ns, at least one operation)."""
    at = int(gpu_start_ns.min())
    base = int(gpu_start_ns[0] - enqueue_ns[0])  # keeps the differences small enough for floats
    x_start, x_stop = (gpu_start_ns - at).astype(float), (gpu_stop_ns - at).astype(float)
    upper = (gpu_start_ns - enqueue_ns - base).astype(float)
    lower_start = (gpu_start_ns - seen_start_ns - base).astype(float)
    lower_stop = (gpu_stop_ns - seen_stop_ns - base).astype(float)
    slope = _slope(x_start, lower_start)
    lowest = max(float((lower_start - slope * x_start).max()), float((lower_stop - slope * x_stop).max()))
    highest = float((upper - slope * x_start).min())
    return GpuClock(at, base + round((lowest + highest) / 2), slope, abs(highest - lowest) / 2)


def _slope(x: np.ndarray[Any, Any], lower: np.ndarray[Any, Any]) -> float:
    """Return how fast the clocks part, from the tightest bound in each stretch of time."""
    span = float(x.max())
    if span < _SPAN_FOR_SLOPE_NS:
        return 0.0
    bins = np.minimum((x / span * _BINS).astype(int), _BINS - 1)
    best = np.full(_BINS, -np.inf)
    np.maximum.at(best, bins, lower)
    filled = np.isfinite(best)
    if filled.sum() < 4:
        return 0.0
    centres = (np.arange(_BINS)[filled] + 0.5) * span / _BINS
    slope = float(np.polyfit(centres, best[filled], 1)[0])
    return slope if abs(slope) < _MOST_SLOPE else 0.0
