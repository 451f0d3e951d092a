"""An order that is drawn: how urgent each piece of an operation is in a step, from the seed alone.

A piece gets the same number on every rank, however many steps are asked for and however ranks are simulated or run; each step
has an order of its own.
"""

from __future__ import annotations

import numpy as np

from ringwright.ground.hashing import following


def drawn(seed: int, step: int, operation: int, pieces: range, *, micro_batch: int = 0) -> np.ndarray:
    """Return the urgency of some pieces of an operation, small first: int64 of shape (len(pieces),), from 0 to 2**62.

    ``operation`` counts operations of a job as ``operations`` lists them.
    """
    state = np.zeros(1, np.uint64)
    for part in (seed, step, operation, micro_batch):
        state = following(state ^ np.uint64(part & (1 << 64) - 1))
    return (following(state + np.array(pieces, np.uint64)) >> np.uint64(2)).astype(np.int64)
