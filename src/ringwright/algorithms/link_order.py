"""An order of messages on links beside that of the data: what was planned to go first does, though another is ready before it.

Engines serve links first come, first served. A message that must not pass an earlier one waits for the last of what that one
waits for; both are then there at once, and equal times are served in the order of the program. This says nothing about data: a
program is as right without it, and thread blocks, which run in the order of the steps, have it anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.program import Program


@dataclass(frozen=True)
class LinkOrder:
    """The order that follows from the data of ``program``, and ``also``: pairs (before, after) of its messages."""

    program: Program
    also: tuple[tuple[int, int], ...]

    def edges(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return (before, after, joins): which message waits for which, as ``engines.flat.gather`` numbers the messages.

        Both arrays are int64 of shape (edges,).
        """
        import numpy as np

        from ringwright.engines.flat import gather, in_order

        pieces = gather(self.program)
        order = in_order(pieces)
        before, after = order.edges()
        further = np.array(self.also, np.int64).reshape(-1, 2)
        joins = len(order.waits) - len(pieces.src)
        return np.concatenate((before, further[:, 0])), np.concatenate((after, further[:, 1])), joins
