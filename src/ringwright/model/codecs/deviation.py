"""How far a sum is from the exact one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TAIL = 0.999


@dataclass(frozen=True)
class Deviation:
    """How far results are from exact ones.

    Parameters
    ----------
    relative_rms
        Root mean square of the error, over that of the exact result; 0 where both are 0.
    largest
        The largest error of an element, over the largest exact element.
    worst_relative
        Error of an element relative to that element, which all but a thousandth of the elements do not exceed.
    elements, not_finite
        Elements compared, and those left out since one of the two is NaN or infinite.
    """

    relative_rms: float
    largest: float
    worst_relative: float
    elements: int
    not_finite: int


def deviation(values: np.ndarray, exact: np.ndarray) -> Deviation:
    """Return how far values are from exact ones, both of one shape."""
    values, exact = np.ravel(values).astype(np.float64), np.ravel(exact).astype(np.float64)
    finite = np.isfinite(values) & np.isfinite(exact)
    error, size = np.abs(values[finite] - exact[finite]), np.abs(exact[finite])
    if not len(error):
        return Deviation(0.0, 0.0, 0.0, 0, int((~finite).sum()))
    own, last = _ratio(error, size), math.ceil(TAIL * len(error)) - 1
    return Deviation(
        float(_ratio(np.sqrt((error**2).mean()), np.sqrt((size**2).mean()))),
        float(_ratio(error.max(), size.max())),
        float(np.partition(own, last)[last]),
        len(error),
        int((~finite).sum()),
    )


def _ratio(error: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return error over size, float64 of their shape; nothing over nothing is nothing, something over it infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(error) == 0, 0.0, np.divide(error, size))
