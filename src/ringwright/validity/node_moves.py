"""The moves of a program at aggregating nodes, those of one kind, pair and channel together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.program import Op

if TYPE_CHECKING:
    from ringwright.program import Block, Program

AT_NODES = (Op.CONTRIBUTE, Op.COMBINE, Op.EMIT)
BATCH = 1 << 16  # moves that are put together at once


@dataclass(frozen=True)
class NodeMoves:
    """Moves of a program at aggregating nodes, a row for each operation, pair of program nodes and channel.

    Parameters
    ----------
    op, src, dst, channel
        Which: int64 of shape (rows,).
    size_bytes
        Data of all of them: int64 of shape (rows,).
    copied
        Whether some of them are copies of a multicast: bool of shape (rows,).
    places
        Each aggregating node, channel and slot that moves use: int64 of shape (places, 3).
    """

    op: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    channel: np.ndarray
    size_bytes: np.ndarray
    copied: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class RowsByEnd:
    """Rows by a number that each has, as the program node at one of its ends.

    ``order`` has the rows' numbers, ``end`` what they are sorted by: int64 of shape (rows,).
    """

    order: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, end: np.ndarray) -> RowsByEnd:
        """Return the rows by these numbers, int64 of shape (rows,)."""
        order = np.argsort(end, kind="stable")
        return cls(order, end[order])

    def rows(self, end: int) -> np.ndarray:
        """Return the rows that have a number, in order. int64 of shape (rows,)."""
        low, high = np.searchsorted(self.end, [end, end + 1])
        return self.order[low:high]


def node_moves(program: Program) -> NodeMoves:
    """Return the moves at the aggregating nodes of a program, whose ranks and slots exist."""
    rows, places = [], []
    for blocks in _batches(program):
        table = _table(blocks)
        rows.append(_rows(program, blocks[0].span, table))
        places.append(_places(program, blocks[0].span, table))
    every = np.concatenate(rows, axis=1) if rows else np.zeros((3, 0), np.int64)
    keys, which = np.unique(every[0], return_inverse=True)
    size = np.bincount(which, weights=every[1], minlength=len(keys)).astype(np.int64)
    copied = np.bincount(which, weights=every[2], minlength=len(keys)) > 0
    used = np.unique(np.concatenate(places)) if places else np.zeros(0, np.int64)
    n, slots = program.n_nodes, program.layout.slots
    rest, dst = np.divmod(keys, n)
    rest, src = np.divmod(rest, n)
    channel, op = np.divmod(rest, len(Op))
    at, slot = np.divmod(used, slots)
    used_by, node = np.divmod(at, n)
    return NodeMoves(op, src, dst, channel, size, copied, np.stack((node, used_by, slot), axis=1))


def _batches(program: Program) -> Iterator[list[Block]]:
    """Yield the blocks at aggregating nodes, some thousands of moves of one span at a time."""
    waiting: dict[int, list[Block]] = {}
    moves: dict[int, int] = {}
    for step in program.steps():
        for block in step.blocks:
            if block.op not in AT_NODES or not block.count:
                continue
            waiting.setdefault(block.span, []).append(block)
            moves[block.span] = moves.get(block.span, 0) + block.count
            if moves[block.span] > BATCH:
                moves[block.span] = 0
                yield waiting.pop(block.span)
    yield from waiting.values()


def _table(blocks: list[Block]) -> np.ndarray:
    """Return src, dst, chunk, to, channel, operation and whether it is copied of each move. int64 of shape (7, moves)."""
    ends = np.concatenate([np.stack(block.arrays()) for block in blocks], axis=1)
    each = np.array([(block.channel, int(block.op), block.multicast) for block in blocks], np.int64)
    return np.concatenate((ends, np.repeat(each, [block.count for block in blocks], axis=0).T))


def _rows(program: Program, span: int, table: np.ndarray) -> np.ndarray:
    """Return a number, bytes and copies of each operation, pair and channel. int64 of shape (3, rows)."""
    src, dst, chunk, _, channel, op, copied = table
    n = program.n_nodes
    keys, which = np.unique(((channel * len(Op) + op) * n + src) * n + dst, return_inverse=True)
    sizes = program.layout.message_bytes(chunk, span)
    sums = [np.bincount(which, weights=each, minlength=len(keys)) for each in (sizes, copied)]
    return np.stack((keys, *(each.astype(np.int64) for each in sums)))


def _places(program: Program, span: int, table: np.ndarray) -> np.ndarray:
    """Return a number of each channel, aggregating node and slot that a move reads or writes. int64 of shape (places,)."""
    src, dst, chunk, to, channel, _, _ = table
    numbers = []
    for node, slot in ((src, chunk), (dst, to)):
        at = np.flatnonzero(node >= program.p)
        first = (channel[at] * program.n_nodes + node[at]) * program.layout.slots + slot[at]
        numbers.append(np.unique(first) if span == 1 else np.unique(first[:, None] + np.arange(span)))
    return np.concatenate(numbers)
