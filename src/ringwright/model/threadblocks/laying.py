"""Instructions that have a thread block and know what they need, as the rows of a file.

A row waits for one other row. An instruction that needs more is led by nops, one for each further thread block; what its own
thread block does or has waited for before is not waited for again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.model.threadblocks.table import Code, Opcode

if TYPE_CHECKING:
    import numpy as np

_NOP = (int(Opcode.NOP), 0, -1, 1, -1, 0)


@dataclass(frozen=True)
class Assigned:
    """Instructions in an order that all ranks share, each with its thread block.

    ``block`` is the row of the thread block; ``operands`` has the columns kind, src_buffer, src, dst_buffer, dst and count.
    Instruction ``after[i]`` needs ``before[i]``, which is earlier and of the same rank.
    """

    block: np.ndarray
    operands: np.ndarray
    before: np.ndarray
    after: np.ndarray

    def awaited(self) -> np.ndarray:
        """Return the rows of thread blocks that others need. int64 of shape (blocks,), sorted."""
        import numpy as np

        across = self.block[self.before] != self.block[self.after]
        return np.unique(self.block[self.before[across]])

    def code(self, turn: np.ndarray) -> Code:
        """Return the rows, thread block after thread block; of several waits those for a low ``turn`` (by block) come first."""
        import numpy as np

        before, after = self._waits()
        by = np.lexsort((turn[self.block[before]], after))
        before, after = before[by], after[by]
        n = len(self.block)
        waits = np.bincount(after, minlength=n)
        rows = np.maximum(waits, 1)
        order = np.argsort(self.block, kind="stable")
        last = np.empty(n, np.int64)  # the row of each instruction itself, behind its nops
        last[order] = np.cumsum(rows[order]) - 1
        table = np.empty((int(rows.sum()), 10), np.int64)
        table[:, 2:8] = _NOP
        table[last, 2:8] = self.operands
        table[:, 0] = np.repeat(self.block[order], rows[order])
        table[:, 1] = np.arange(len(table)) - np.searchsorted(table[:, 0], table[:, 0])
        table[:, 8], table[:, 9] = -1, 0
        ends = np.cumsum(waits)
        nth = np.arange(len(after)) - np.repeat(ends - waits, waits)
        table[last[after] - waits[after] + 1 + nth, 8] = last[before]
        table[last[before], 9] = 1
        none = np.full(len(table), -1, np.int64)
        columns = [*(np.ascontiguousarray(column) for column in table.T), none, none, none + 1]
        return Code(*columns)

    def _waits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (before, after): the last need of each other thread block, where that is later than what was waited for."""
        import numpy as np

        across = self.block[self.before] != self.block[self.after]
        before, after = self.before[across], self.after[across]
        group = self.block[after] * (int(self.block.max(initial=0)) + 1) + self.block[before]
        by = np.lexsort((before, after, group))
        before, after, group = before[by], after[by], group[by]
        latest = np.append((after[1:] != after[:-1]) | (group[1:] != group[:-1]), True)[: len(after)]
        before, after, group = before[latest], after[latest], group[latest]
        _, group = np.unique(group, return_inverse=True)
        height = group * (len(self.block) + 1) + before + 1
        seen = np.maximum.accumulate(np.append(0, height))[:-1]
        fresh = height > seen
        return before[fresh], after[fresh]
