"""How much a measured time varies by itself: from repeated calls, from in-place and out-of-place rows, or a stated assumption.

A noise is the relative standard deviation of one measured time, robust against outliers.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ASSUMED = 0.03  # where nothing was repeated
LEAST = 0.002  # no clock and no printed digit says less
LEAST_ROW = 0.005  # of one row of a table
FEWEST = 3  # values or pairs that make an estimate
NEAR = 16  # sizes within this factor vary alike
ROBUST = 1.4826  # from a median of distances to a standard deviation


class Noise(NamedTuple):
    """A relative standard deviation and where it comes from."""

    share: float
    source: str


UNKNOWN = Noise(ASSUMED, f"assumed ({ASSUMED:.0%}): nothing was repeated")


def spread(values: Sequence[float]) -> float | None:
    """Return the relative standard deviation of repeated times, None below three of them."""
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < FEWEST:
        return None
    middle = median(logs)
    return ROBUST * median(abs(each - middle) for each in logs)


def of_median(share: float, many: float) -> float:
    """Return the noise of the median of ``many`` times of noise ``share``."""
    return share if many < 2 else max(LEAST, 1.2533 * share / math.sqrt(many))


class Pairs:
    """Rows measured in place and out of place: how far the two differ says how far one varies, per operation and size."""

    def __init__(self, *sides: Iterable[dict[str, Any]]) -> None:
        self._found: dict[str, list[tuple[int, float]]] = {}
        for side in sides:
            self._add(side)

    def _add(self, side: Iterable[dict[str, Any]]) -> None:
        places: dict[tuple[Any, ...], dict[str, float]] = {}
        for row in side:
            key = tuple(
                row.get(name) for name in ("table", "op", "size_bytes", "nranks", "algorithm", "protocol", "datatype")
            )
            places.setdefault(key, {})[row.get("task") or ""] = row["time_us"]
        for key, times in places.items():
            outside, inside = times.get("out-of-place"), times.get("in-place")
            if outside and inside:
                self._found.setdefault(key[1], []).append((key[2], abs(math.log(outside / inside))))

    def near(self, op: str, size_bytes: int) -> Noise | None:
        """Return the noise of one row of about this size, None where fewer than three pairs are near."""
        low, high = max(1, size_bytes) / NEAR, max(1, size_bytes) * NEAR
        gaps = [gap for size, gap in self._found.get(op, []) if low <= max(1, size) <= high]
        if len(gaps) < FEWEST:
            return None
        return Noise(max(LEAST_ROW, ROBUST * median(gaps) / math.sqrt(2)), "in and out of place")
