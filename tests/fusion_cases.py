"""Fifty traces with known fusions: thirty made by hand, twenty real ones altered; one half to tune on, the other to judge by."""

from __future__ import annotations

import random

from fusion_altered import altered
from fusion_made import made
from fusion_truth import KnownTrace

SEED = 20261126


def cases(draw: int = 0) -> list[KnownTrace]:
    """Return the fifty of a draw: other draws hold other numbers, layers, steps, reductions and ranks."""
    return made(draw) + altered(draw)


def halves() -> tuple[list[KnownTrace], list[KnownTrace]]:
    """Return the half that rules may be tuned on, and the half that is only judged."""
    every = cases()
    tuned = set(random.Random(SEED).sample(range(len(every)), len(every) // 2))
    return [one for n, one in enumerate(every) if n in tuned], [one for n, one in enumerate(every) if n not in tuned]
