"""The thread blocks of a declared program: its tables, and what follows from them, found once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.model.threadblocks.moves import Moves, find_moves
from ringwright.model.threadblocks.order import InstructionOrder, find_order
from ringwright.model.threadblocks.table import ThreadBlockTables
from ringwright.model.threadblocks.timing import message_edges

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Schedule(ThreadBlockTables):
    """The tables, with their order and the moves that they mean."""

    @cached_property
    def order(self) -> InstructionOrder:
        """Return what must happen before what."""
        return find_order(self)

    @cached_property
    def moves(self) -> Moves:
        """Return what the instructions that can run do, wave by wave."""
        return find_moves(self, self.order)

    def edges(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return (before, after, joins): which message waits for which, as ``engines.flat.gather`` numbers the messages.

        Both arrays are int64 of shape (edges,).
        """
        return message_edges(self, self.order, self.moves)
