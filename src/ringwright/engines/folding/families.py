"""Families of blocks: blocks of a program that are equal but for the chunk at which they begin.

A ring on 131,072 ranks has 262,142 steps and two families. What is expensive to compute (routes through the fabric, symmetry)
is computed once per family.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.engines.folding.patterns import IndexPattern, recognised
from ringwright.ground.errors import DeclinedError
from ringwright.model.program import Affine, Op

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.program import Block, Program


@dataclass
class BlockFamily:
    """Equal blocks; a row of ``rows`` is step, place in the step, then base and offsets of chunk and of target slot.

    ``homes`` are the sets of slots (of ``n_chunks`` each) in which chunk and target slot begin.
    """

    block: Block  # the first of them
    src: IndexPattern
    dst: IndexPattern
    chunk: IndexPattern
    to: IndexPattern
    homes: tuple[int, int]
    rows: array[int] = field(default_factory=lambda: array("q"))

    @cached_property
    def table(self) -> np.ndarray:
        """Return the rows as a table, int64. Of shape (blocks, columns)."""
        import numpy as np

        return np.frombuffer(self.rows, np.int64).reshape(-1, 4 + len(self.chunk.parts) + len(self.to.parts))

    @property
    def starts(self) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Return (bases, offsets) of the chunk, and of the target slot, a row a block.

        int64: bases of shape (blocks,), offsets of shape (blocks, parts).
        """
        cut = 3 + len(self.chunk.parts)
        table = self.table
        return (table[:, 2], table[:, 3:cut]), (table[:, cut], table[:, cut + 1 :])

    @property
    def channel(self) -> int:
        """Channel of the messages; copies within a rank have one of their own."""
        return -1 if self.block.op is Op.COPY else self.block.channel


def turning(family: BlockFamily) -> dict[int, tuple[int, int]]:
    """Return which axes of a block run over a digit (weight, size) of the source rank and of the target alike."""
    turns = {}
    for axis, count in enumerate(family.block.shape):
        ends = [[index.parts[number] for number in index.on(axis)] for index in (family.src, family.dst)]
        if count == 1 or any(len(parts) != 1 for parts in ends):
            continue
        here, there = ends[0][0], ends[1][0]
        one_by_one = here.slope % here.modulus == 1 and there.slope % there.modulus == 1
        if one_by_one and here.modulus == there.modulus == count and here.weight == there.weight > 0:
            turns[axis] = (here.weight, count)
    return turns


def collect(program: Program) -> list[BlockFamily]:
    """Return the families of a program; raise DeclinedError where a block lists moves without a pattern."""
    families: dict[object, BlockFamily] = {}
    size = max(program.layout.n_chunks, 1)
    for number, step in enumerate(program.steps()):
        if step.loop:
            raise DeclinedError("its loops wait for each other")
        for index, block in enumerate(step.blocks):
            chunk, src, dst = block.chunk, block.src, block.dst
            to = chunk if block.to is None else block.to
            if not (
                isinstance(src, Affine)
                and isinstance(dst, Affine)
                and isinstance(chunk, Affine)
                and isinstance(to, Affine)
            ):
                _add_listed(families, block, number, index, size)
                continue
            begins = chunk.base, *[offset for _, offset, _, _ in chunk.digits]
            shape = chunk.base // size, *[(slope, modulus, weight) for slope, _, modulus, weight in chunk.digits]
            if to is chunk:
                ends, target = begins, shape
            else:
                ends = to.base, *[offset for _, offset, _, _ in to.digits]
                target = to.base // size, *[(slope, modulus, weight) for slope, _, modulus, weight in to.digits]
            key = (
                block.op,
                block.shape,
                block.span,
                block.channel,
                block.multicast,
                src.digits,
                src.base,
                dst.digits,
                dst.base,
                shape,
                target,
            )
            family = families.get(key)
            if family is None:
                family = families[key] = _family(block, size, number)
            family.rows.extend((number, index, *begins, *ends))
    return list(families.values())


def _family(block: Block, size: int, number: int) -> BlockFamily:
    fields = [
        recognised(index)
        for index in (block.src, block.dst, block.chunk, block.chunk if block.to is None else block.to)
    ]
    patterns = [pattern for pattern in fields if pattern is not None]
    if len(patterns) < len(fields):
        raise DeclinedError(f"step {number} lists its moves one by one")
    src, dst, chunk, to = patterns
    family = BlockFamily(block, src, dst, chunk, to, (chunk.base // size, to.base // size))
    if not turning(family):
        raise DeclinedError(f"step {number} is not the same for all ranks")
    return family


def _add_listed(families: dict[object, BlockFamily], block: Block, number: int, index: int, size: int) -> None:
    """Add a block with listed fields, whose patterns have to be recognised first."""
    if len(block.shape) > 1:
        raise DeclinedError(f"step {number} lists its moves one by one")
    added = _family(block, size, number)
    chunk, to = added.chunk, added.to
    key = (
        block.op,
        block.shape,
        block.span,
        block.channel,
        block.multicast,
        added.src,
        added.dst,
        chunk.parts,
        to.parts,
        added.homes,
    )
    family = families.setdefault(key, added)
    family.rows.extend((number, index, chunk.base, *chunk.offsets, to.base, *to.offsets))
