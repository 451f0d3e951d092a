"""The lanes of a declared program: its tables, and what follows from them, found once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.lanes.moves import Moves, find_moves
from ringwright.lanes.order import Order, find_order
from ringwright.lanes.table import Tables
from ringwright.lanes.timing import message_edges

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Lanes(Tables):
    """The tables, with their order and the moves that they mean."""

    @cached_property
    def order(self) -> Order:
        """Return what must happen before what."""
        return find_order(self)

    @cached_property
    def moves(self) -> Moves:
        """Return what the instructions that can run do, wave by wave."""
        return find_moves(self, self.order)

    def edges(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return (before, after, joins): which message waits for which, as ``engines.flat.gather`` numbers the messages."""
        return message_edges(self, self.order, self.moves)
