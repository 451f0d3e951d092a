"""What the figures fit, and how a curve is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

GOLDEN = (5**0.5 - 1) / 2
NEAR = 1e-3  # relative width at which a search ends
MOST_QUESTIONS = 40


def least(error: Callable[[float], float], low: float, high: float) -> float:
    """Return where ``error``, which falls and then rises between ``low`` and ``high``, is least (golden section)."""
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_a, at_b = error(a), error(b)
    while high - low > NEAR * high:
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = error(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = error(b)
    return (low + high) / 2


def crossing(value: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Return where ``value`` passes ``wanted`` between two points on either side of it; nan where they are on one side.

    Straight lines through the ends, the one that stays halved (Illinois): few questions where the curve is nearly straight.
    """
    at_low, at_high = value(low) - wanted, value(high) - wanted
    if (at_low > 0) == (at_high > 0):
        return float("nan")
    point, stays = low, 0
    for _ in range(MOST_QUESTIONS):
        before, point = point, (low * at_high - high * at_low) / (at_high - at_low)
        if abs(point - before) <= NEAR * abs(point):
            break
        at = value(point) - wanted
        if (at > 0) == (at_high > 0):
            high, at_high, at_low, stays = point, at, at_low / 2 if stays == 1 else at_low, 1
        else:
            low, at_low, at_high, stays = point, at, at_high / 2 if stays == -1 else at_high, -1
    return point


def turns(values: Sequence[float], ripple: float) -> int:
    """Return how often a curve rises by more than ``ripple`` (relative) and then falls by more than that again."""
    count, lowest, highest = 0, values[0], None
    for value in values:
        if highest is None:
            lowest = min(lowest, value)
            highest = value if value > lowest * (1 + ripple) else None
        else:
            highest = max(highest, value)
            if value < highest * (1 - ripple):
                count, lowest, highest = count + 1, value, None
    return count
