"""What was found out of operations on a machine, each by the system that does it: another system changes nothing of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.model.stages import Stage

MOST_TIMED, MOST_ASKED = 1 << 14, 1 << 13  # operations, phases of operations that are remembered: some 20 MB each
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TimedRanks:
    """Ranks as they are timed; ``healthy``: none of their hosts' links has a fault."""

    ranks: tuple[int, ...]
    healthy: bool = True


@dataclass(frozen=True)
class Timed:
    """Seconds of one operation beside its siblings; the links and shared capacities that they keep busy, and the share of each.

    Numbered as in a ``Machine``; arrays int64 and float64 of shape (links,).
    """

    seconds: float
    links: np.ndarray
    shares: np.ndarray

    def lasting(self, seconds: float) -> Timed:
        """Return it with other seconds, in which its links carry the same bytes."""
        return replace(self, seconds=seconds, shares=self.shares * (self.seconds / seconds) if seconds else self.shares)


Groups = tuple[TimedRanks, ...]


@dataclass
class KnownOperations:
    """By (who does it, operation, groups that do it at once, ...): what it takes, who is at work beside, bytes sent, refusals.

    ``stages`` are by (who does each part, operation, bytes, ranks).
    """

    timed: dict[tuple[str, str, Groups, int], Timed] = field(default_factory=dict)
    beside: dict[tuple[str, str, Groups], Groups] = field(default_factory=dict)
    sent: dict[tuple[str, str, TimedRanks, int], float] = field(default_factory=dict)
    refused: dict[tuple[str, str, TimedRanks], UsageError] = field(default_factory=dict)
    stages: dict[tuple[tuple[str, ...], str, int, tuple[int, ...]], tuple[Stage, ...]] = field(default_factory=dict)


def remembered(known: dict[K, V], key: K, most: int, make: Callable[[], V]) -> V:
    """Return what is known by a key, made where it is not; of more than ``most``, what came in first is let go."""
    if key not in known:
        made = make()
        while len(known) >= most:
            del known[next(iter(known))]
        known[key] = made
    return known[key]
