"""Families of blocks: blocks of a program that differ in nothing but where their chunks begin.

A ring on 131,072 ranks has 262,142 steps and two families. What is costly to find out (ways through the fabric, symmetry)
is found out once a family.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.errors import DeclinedError
from ringwright.program import Affine, Op

if TYPE_CHECKING:
    import numpy as np

    from ringwright.program import Block, Digit, Program


@dataclass
class Family:
    """Equal blocks; a row of ``rows`` is step, place in the step, then base and offsets of chunk and of target slot."""

    block: Block  # the first of them
    src: Affine
    dst: Affine
    chunk: Affine
    to: Affine
    rows: array[int] = field(default_factory=lambda: array("q"))

    @cached_property
    def table(self) -> np.ndarray:
        """Return the rows as a table, int64."""
        import numpy as np

        return np.frombuffer(self.rows, np.int64).reshape(-1, 4 + len(self.chunk.digits) + len(self.to.digits))

    @property
    def starts(self) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Return (bases, offsets) of the chunk, and of the target slot, a row a block."""
        cut = 3 + len(self.chunk.digits)
        table = self.table
        return (table[:, 2], table[:, 3:cut]), (table[:, cut], table[:, cut + 1 :])

    @property
    def channel(self) -> int:
        """Channel of the messages; copies within a rank have one of their own."""
        return -1 if self.block.op is Op.COPY else self.block.channel


def collect(program: Program) -> list[Family]:
    """Return the families of a program; raise DeclinedError where a block lists its moves one by one."""
    families: dict[object, Family] = {}
    for number, step in enumerate(program.steps()):
        for place, block in enumerate(step.blocks):
            chunk, to = block.chunk, block.chunk if block.to is None else block.to
            src, dst = block.src, block.dst
            if not (
                isinstance(src, Affine)
                and isinstance(dst, Affine)
                and isinstance(chunk, Affine)
                and isinstance(to, Affine)
            ):
                raise DeclinedError(f"step {number} lists its moves one by one")
            key = (
                block.op, block.shape, block.span, block.channel, block.multicast, src.digits, src.base, dst.digits, dst.base,
                tuple([(a, m, w) for a, _, m, w in chunk.digits]), tuple([(a, m, w) for a, _, m, w in to.digits]),
            )  # fmt: skip
            family = families.get(key)
            if family is None:
                family = families[key] = Family(block, src, dst, chunk, to)
            row = [number, place, chunk.base, *[digit[1] for digit in chunk.digits]]
            family.rows.extend((*row, to.base, *[digit[1] for digit in to.digits]))
    return list(families.values())


def padded(index: Affine, family: Family) -> list[Digit]:
    """Return a pattern's digits, one for each axis of the family's range."""
    return [*index.digits, *[(0, 0, 1, 0)] * (len(family.block.shape) - len(index.digits))]
