"""Lanes: the declared order of an imported program, thread block by thread block.

Each rank runs its thread blocks side by side; one thread block runs its instructions in order, talks to one peer in each
direction on one channel, and finds room for a bounded number of messages under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Lanes:
    """Instructions of all thread blocks."""

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (before, after): which message waits for which, in the numbering of the program's messages."""
        raise NotImplementedError
