"""The slots of a tree of switches, packet by packet: whom each has heard, and whether the result stands in it.

After algorithm 3 of Sapio et al. (NSDI 2021): two versions of a slot, so that the last result is there for who lost it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.engines.pools.pool_machine import SlotPool

WAITS, COMPLETE, HELD = range(3)


class PoolSlots:
    """What stands in the slots of every switch; packet ``chunk`` of each worker goes through slot ``chunk % slots``."""

    def __init__(self, pool: SlotPool) -> None:
        self.first, self.room = pool.workers, 2 * pool.slots
        switches = len(pool.parents) - self.first
        self.children: list[list[int]] = [[] for _ in range(switches)]
        for node, parent in enumerate(pool.parents[:-1]):
            self.children[parent - self.first].append(node)
        self._bit = [0] * len(pool.parents)
        for below in self.children:
            for number, node in enumerate(below):
                self._bit[node] = 1 << number
        self._full = [(1 << len(below)) - 1 for below in self.children]
        self._chunk = [[-1] * self.room for _ in range(switches)]
        self._heard = [[0] * self.room for _ in range(switches)]
        self._held = [[False] * self.room for _ in range(switches)]

    def given(self, node: int, switch: int, chunk: int) -> int:
        """Take a packet of a node; say whether others are missing, its slot is complete without a result, or holds it."""
        at, slot = switch - self.first, chunk % self.room
        if self._chunk[at][slot] != chunk:
            if self._chunk[at][slot] > chunk:
                return WAITS  # a copy that comes after its time
            self._chunk[at][slot], self._heard[at][slot], self._held[at][slot] = chunk, 0, False
        elif self._heard[at][slot] & self._bit[node]:
            if self._held[at][slot]:
                return HELD
            return COMPLETE if self._heard[at][slot] == self._full[at] else WAITS
        self._heard[at][slot] |= self._bit[node]
        return COMPLETE if self._heard[at][slot] == self._full[at] else WAITS

    def result(self, switch: int, chunk: int) -> bool:
        """Let a result into its slot; say whether it is the first copy, for whose slot this switch waits."""
        at, slot = switch - self.first, chunk % self.room
        if self._chunk[at][slot] != chunk or self._held[at][slot] or self._heard[at][slot] != self._full[at]:
            return False
        self._held[at][slot] = True
        return True
