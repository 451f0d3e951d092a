"""Instances: the same program several times side by side, each on its share of every chunk.

Each chunk becomes as many as there are instances. *Interleaved*, the pieces of a chunk follow each other; *batched*, the pieces
that one instance has of a block follow each other, so that a range of chunks stays one range. Scratch is always batched.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from ringwright.algorithms.language.tape import SCRATCH, Tape, WrittenLines
from ringwright.model.threadblocks.accesses import slots_of
from ringwright.model.threadblocks.msccl import MOST_COUNT


@dataclass(frozen=True)
class Replication:
    """``own`` chunks of a buffer belong to one block; ``unit`` of them stay together where instances are interleaved."""

    count: int
    own: int
    unit: int

    @classmethod
    def of(cls, count: int, own: int, operations: WrittenLines, *, interleaved: bool) -> Replication:
        """Return how a script's chunks are shared between ``count`` instances."""
        unit = own
        if interleaved:
            rows = operations.rows
            named = [rows[rows[:, side] != SCRATCH][:, [side + 1, 7]].reshape(-1) for side in (2, 5)]
            unit = math.gcd(own, int(np.gcd.reduce(np.concatenate([*named, [0]]))))
        return cls(count, own, max(unit, 1))

    def cut(self, operations: WrittenLines) -> WrittenLines:
        """Return the operations in pieces whose chunks follow each other in every instance, and are not too many for a step."""
        rows = operations.rows
        if not (rows[:, 7] > 1).any():
            return operations
        chunk, which = slots_of(np.zeros(len(rows), np.int64), rows[:, 7])
        begins = chunk % MOST_COUNT == 0
        if self.count > 1:
            for side in (2, 5):
                named = rows[which, side] != SCRATCH
                begins |= named & ((rows[which, side + 1] + chunk) % self.unit == 0)
        at = np.flatnonzero(begins)
        pieces = rows[which[at]]
        pieces[:, 3] += chunk[at]
        pieces[:, 6] += chunk[at]
        pieces[:, 7] = np.diff(np.append(at, len(chunk)))
        return dataclasses.replace(operations, rows=pieces)

    def _index(self, tape: Tape, buffer: np.ndarray, chunk: np.ndarray, instance: int) -> np.ndarray:
        """Return where chunks lie in one instance."""
        block, inner = chunk // self.unit, chunk % self.unit
        shared = (block * self.count + instance) * self.unit + inner
        moved: np.ndarray = np.where(
            buffer == SCRATCH, chunk + instance * tape.sizes[tape.rank, SCRATCH], np.where(chunk < 0, chunk, shared)
        )
        return moved

    def replicated(self, tape: Tape) -> Tape:
        """Return all instances one after the other; the thread blocks and channels of each are behind those of the one before."""
        if self.count == 1:
            return tape
        blocks, channels, n = int(tape.tb.max(initial=-1)) + 1, int(tape.channel.max(initial=0)) + 1, len(tape)
        columns: dict[str, np.ndarray] = {}
        for field in dataclasses.fields(tape)[:-1]:
            column = getattr(tape, field.name)
            columns[field.name] = np.tile(column, self.count)
        by = np.repeat(np.arange(self.count), n)
        columns["tb"] += by * blocks
        columns["channel"] += by * channels
        columns["then"] = np.where(columns["then"] >= 0, columns["then"] + by * n, -1)
        for side in ("src", "dst"):
            buffer, chunk = getattr(tape, f"{side}_buffer"), getattr(tape, side)
            parts = [self._index(tape, buffer, chunk, instance) for instance in range(self.count)]
            columns[side] = np.concatenate(parts)
        return Tape(**columns, sizes=tape.sizes * self.count)
