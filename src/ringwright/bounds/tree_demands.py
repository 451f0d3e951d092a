"""What a group of ranks wants of trees: blocks that are spread, collected, or collected and then spread again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.bounds.arcs import Arcs


@dataclass(frozen=True, eq=False)
class TreeDemand:
    """Blocks that trees are to carry on a machine.

    Parameters
    ----------
    phases
        The arcs that each phase goes over: one that spreads or collects, or one that collects and one that spreads the result.
        All demands of a search name resources by the same numbers (``arcs.together``).
    blocks
        Bytes of the block of each place, float64 of shape (places,); 0: no root.
    is_free
        Whether the sum of the blocks alone counts, so that roots may have more or less, the same in every phase.
    """

    phases: tuple[Arcs, ...]
    blocks: np.ndarray
    is_free: bool = False

    @property
    def times(self) -> int:
        """For how many places each root stands."""
        turns = self.phases[0].symmetry
        return 1 if turns is None else turns.order

    @property
    def roots(self) -> np.ndarray:
        """Roots that the program tells apart, int64 of shape (roots,)."""
        import numpy as np

        turns = self.phases[0].symmetry
        if turns is not None:
            return turns.bases
        return np.arange(len(self.blocks)) if self.is_free else np.flatnonzero(self.blocks > 0)

    def shared(self, parts: np.ndarray) -> np.ndarray:
        """Return the blocks where each root (with those it stands for) has this part of all: float64 of shape (places,)."""
        import numpy as np

        turns, total = self.phases[0].symmetry, float(self.blocks.sum())
        blocks = np.zeros(len(self.blocks))
        for root, part in zip(self.roots.tolist(), parts.tolist(), strict=True):
            images = root if turns is None else turns.turned(np.full(turns.order, root), np.arange(turns.order))
            blocks[images] = part * total / self.times
        return blocks
