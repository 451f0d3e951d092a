"""The moves of a program at aggregating nodes, those of one kind, pair and channel together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.program import Affine, Op

if TYPE_CHECKING:
    from ringwright.model.program import Block, Layout, Program

AT_NODES = (Op.CONTRIBUTE, Op.COMBINE, Op.EMIT)
BATCH = 1 << 20  # moves and slots that are held at once
FEW = 64  # nodes that may be listed twice


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
    rows, places = [np.zeros((3, 0), np.int64)], [np.zeros(0, np.int64)]
    for lists in _batches(program):
        rows.append(_rows(program.n_nodes, lists))
        places.append(np.unique(np.concatenate([places[0], *(each for moves in lists for each in moves.places())])))
    every, used = np.concatenate(rows, axis=1), np.unique(np.concatenate(places))
    keys, which = np.unique(every[0], return_inverse=True)
    size = np.bincount(which, weights=every[1], minlength=len(keys)).astype(np.int64)
    copied = np.bincount(which, weights=every[2], minlength=len(keys)) > 0
    n, slots = program.n_nodes, program.layout.slots
    rest, dst = np.divmod(keys, n)
    rest, src = np.divmod(rest, n)
    channel, op = np.divmod(rest, len(Op))
    at, slot = np.divmod(used, slots)
    used_by, node = np.divmod(at, n)
    return NodeMoves(op, src, dst, channel, size, copied, np.stack((node, used_by, slot), axis=1))


def _batches(program: Program) -> Iterator[list[_List]]:
    """Yield the lists of moves at aggregating nodes, those of many blocks together."""
    lists: dict[object, _List] = {}
    numbers, held, sizes = _Numbers(), 0, _Sizes(program.layout)
    for step in program.steps():
        for block in step.blocks:
            if block.op not in AT_NODES or not block.count:
                continue
            ends = numbers.of(block.src, block.shape), numbers.of(block.dst, block.shape)
            key = (block.op, block.channel, block.span, block.multicast, *ends)
            if key not in lists:
                lists[key] = _List(block, program, sizes)
                held += block.count
            held += lists[key].add(block)
            if held > BATCH:
                yield list(lists.values())
                lists, held = {}, 0
    if lists:
        yield list(lists.values())


class _Numbers:
    """What is equal for equal ends of blocks; an array that many blocks have is read once."""

    def __init__(self) -> None:
        self._of_bytes: dict[bytes, int] = {}
        self._of_array: dict[int, tuple[np.ndarray, int]] = {}
        self._held = 0

    def of(self, ends: Affine | np.ndarray, shape: tuple[int, ...]) -> object:
        """Return what is equal for equal ends of a block of that shape."""
        if isinstance(ends, Affine):
            return ends, shape
        if id(ends) not in self._of_array:
            if self._held > BATCH:
                self._of_array.clear()
                self._held = 0
            self._held += len(ends)
            # The array is kept with its number: as long as it is, no other has its identity.
            self._of_array[id(ends)] = ends, self._of_bytes.setdefault(ends.tobytes(), len(self._of_bytes))
        return self._of_array[id(ends)][1]


class _Sizes:
    """The bytes of so many slots from each slot on, looked up once for each span."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._of_span: dict[int, np.ndarray] = {}

    def of(self, slots: np.ndarray, span: int) -> np.ndarray:
        """Return the bytes of ``span`` slots from each of ``slots`` on. int64 of the shape of ``slots``."""
        if span == 1:
            return self._layout.bytes_of(slots)
        if span not in self._of_span:
            self._of_span[span] = self._layout.message_bytes(np.arange(self._layout.slots + 1 - span), span)
        sizes: np.ndarray = self._of_span[span][slots]
        return sizes


class _List:
    """Moves between the same nodes in many blocks: who they are is looked at once, which slots they move in each block."""

    def __init__(self, block: Block, program: Program, sizes: _Sizes) -> None:
        self.block, self.blocks, self._sizes = block, 0, sizes
        self.src, self.dst, _, _ = block.arrays()
        self._program = program
        # Of the sources and of the targets: slots that all moves of a block have, and slots of each move.
        self._same: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        self._listed: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])

    def add(self, block: Block) -> int:
        """Take the slots of another block; return how many numbers that are to be held."""
        self.blocks += 1
        held = 0
        fields = block.chunk, block.chunk if block.to is None else block.to
        for field, same, listed in zip(fields, self._same, self._listed, strict=True):
            if isinstance(field, Affine) and not field.digits:
                same[field.base] += 1
            else:
                listed.append(field.values(block.shape) if isinstance(field, Affine) else field)
                held += block.count * block.span
        return held

    def size_bytes(self) -> np.ndarray:
        """Return the bytes of each move in all blocks. int64 of shape (moves,)."""
        span, (same, listed) = self.block.span, (self._same[0], self._listed[0])
        total = np.zeros(len(self.src), np.int64)
        if same:
            total += int((self._sizes.of(np.array([*same]), span) * np.array([*same.values()])).sum())
        if listed:
            total += self._sizes.of(np.stack(listed), span).sum(axis=0)
        return total

    def places(self) -> Iterator[np.ndarray]:
        """Yield numbers of each channel, aggregating node and slot that moves read or write, each of shape (numbers,)."""
        n, slots, span = self._program.n_nodes, self._program.layout.slots, np.arange(self.block.span)
        for ends, same, listed in zip((self.src, self.dst), self._same, self._listed, strict=True):
            at = np.flatnonzero(ends >= self._program.p)
            first = (self.block.channel * n + ends[at]) * slots
            if same and len(at):
                once = np.unique(first) if len(first) > FEW else first
                yield (once[:, None, None] + np.array([*same])[:, None] + span).reshape(-1)
            if listed and len(at):
                yield ((first + np.stack(listed)[:, at])[:, :, None] + span).reshape(-1)


def _rows(n: int, lists: list[_List]) -> np.ndarray:
    """Return a number, bytes and copies of each operation, pair of ``n`` nodes and channel. int64 of shape (3, rows)."""
    numbers, sizes, copies = [], [], []
    for moves in lists:
        block = moves.block
        numbers.append(((block.channel * len(Op) + block.op) * n + moves.src) * n + moves.dst)
        sizes.append(moves.size_bytes())
        copies.append(np.full(len(moves.src), block.multicast * moves.blocks))
    keys, which = np.unique(np.concatenate(numbers), return_inverse=True)
    sums = [np.bincount(which, weights=np.concatenate(each), minlength=len(keys)) for each in (sizes, copies)]
    return np.stack((keys, *(each.astype(np.int64) for each in sums)))
