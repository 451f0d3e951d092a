"""A library's own collective as something to check and to time: its two buffers, laid out as all libraries want them.

Blocks lie in rising order. Where a collective gives every rank one buffer that all share (all-reduce, broadcast, reduce,
send-recv), it is one block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ringwright.execute import data
from ringwright.execute.arithmetic import STORED, element

if TYPE_CHECKING:
    from ringwright.model.collective import Collective


class Buffers:
    """``send`` and ``receive``, elements as stored; ``run`` does the collective once, from one to the other."""

    def __init__(self, collective: Collective, rank: int, run: Callable[[Buffers], Callable[[], object]]) -> None:
        self.collective, self.rank = collective, rank
        self.kind = np.dtype(STORED[element(collective)])
        self.given, self.wanted = list(collective.initial(rank)), list(collective.final(rank))
        self.send = np.zeros(self._elements(self.given), self.kind)
        self.receive = np.zeros(self._elements(self.wanted), self.kind)
        self._run = run(self)

    def _elements(self, blocks: list[int]) -> int:
        return sum(self.counts(blocks))

    def counts(self, blocks: list[int]) -> list[int]:
        """Return the elements of each block."""
        return [data.block_bytes(self.collective, block) // self.kind.itemsize for block in blocks]

    def fill(self, seed: int, *, reals: bool) -> None:
        """Put this rank's contribution into ``send``."""
        begin = 0
        for block, count in zip(self.given, self.counts(self.given), strict=True):
            size = count * self.kind.itemsize
            self.send[begin : begin + count] = data.values(self.collective, self.rank, block, size, seed, reals=reals)
            begin += count
        self.receive[:] = 0

    def run(self) -> None:
        """Do the collective once."""
        self._run()

    def wrong(self, values: np.ndarray, wanted: np.ndarray) -> int:
        """Return how many elements are not what they must be."""
        return data.wrong(values, wanted)

    def results(self) -> list[tuple[int, int, np.ndarray]]:
        """Return (block, 0, bytes) of ``receive``. The bytes are uint8 of shape (bytes,)."""
        results, begin = [], 0
        for block, count in zip(self.wanted, self.counts(self.wanted), strict=True):
            results.append((block, 0, self.receive[begin : begin + count].view(np.uint8)))
            begin += count
        return results


class Bystander:
    """A node that takes no part in the library's collective."""

    def fill(self, seed: int, *, reals: bool) -> None:
        """Have nothing to give."""

    def run(self) -> None:
        """Do nothing."""

    def results(self) -> list[tuple[int, int, np.ndarray]]:
        """Return nothing. Other ranks' bytes are uint8 of shape (bytes,)."""
        return []
