"""The moves of a program at aggregating nodes, those of one kind, pair and channel together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.program import Affine, Op

if TYPE_CHECKING:
    from ringwright.program import Block, Layout, Program

AT_NODES = (Op.CONTRIBUTE, Op.COMBINE, Op.EMIT)
BATCH = 1 << 20  # moves and places that are held at once


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
        places.append(np.unique(np.concatenate([each for moves in lists for each in moves.places()])))
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
    held, sizes = 0, _Sizes(program.layout)
    for step in program.steps():
        for block in step.blocks:
            if block.op not in AT_NODES or not block.count:
                continue
            key = (
                block.op,
                block.channel,
                block.span,
                block.multicast,
                _ends(block.src, block),
                _ends(block.dst, block),
            )
            if key not in lists:
                lists[key] = _List(block, program)
                held += block.count
            held += lists[key].add(block, sizes)
            if held > BATCH:
                yield list(lists.values())
                lists, held = {}, 0
    if lists:
        yield list(lists.values())


def _ends(ends: Affine | np.ndarray, block: Block) -> object:
    """Return what is equal for the same ends: of an array its identity, which its list keeps."""
    return (ends, block.shape) if isinstance(ends, Affine) else id(ends)


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

    def __init__(self, block: Block, program: Program) -> None:
        self.block, self.blocks = block, 0
        self.src, self.dst, _, _ = block.arrays()
        self.size_bytes = np.zeros(block.count, np.int64)
        self._slots, self._span = program.layout.slots, np.arange(block.span)
        self._at = [np.flatnonzero(ends >= program.p) for ends in (self.src, self.dst)]
        self._first = [
            (block.channel * program.n_nodes + ends[at]) * self._slots
            for ends, at in zip((self.src, self.dst), self._at, strict=True)
        ]
        self._same: tuple[set[int], set[int]] = (set(), set())
        self._listed: list[np.ndarray] = []

    def add(self, block: Block, sizes: _Sizes) -> int:
        """Take the slots of another block; return how many numbers that are to be held."""
        self.blocks += 1
        chunk, to = (
            _slots(field, block.shape) for field in (block.chunk, block.chunk if block.to is None else block.to)
        )
        self.size_bytes += sizes.of(np.asarray(chunk), block.span)
        held = 0
        for at, first, same, slots in zip(self._at, self._first, self._same, (chunk, to), strict=True):
            if isinstance(slots, int):
                same.add(slots)
            elif len(at):
                self._listed.append(self._spread(first + slots[at]))
                held += len(self._listed[-1])
        return held

    def places(self) -> Iterator[np.ndarray]:
        """Yield a number of each channel, aggregating node and slot that a move reads or writes. int64 of shape (places,)."""
        yield from self._listed
        for first, same in zip(self._first, self._same, strict=True):
            slots = np.array(sorted(same), np.int64)
            yield self._spread((np.unique(first)[:, None] + slots).reshape(-1))

    def _spread(self, first: np.ndarray) -> np.ndarray:
        """Return the numbers of all slots of a span, each once, from the first ones on."""
        return np.unique(first[:, None] + self._span)


def _slots(field: Affine | np.ndarray, shape: tuple[int, ...]) -> int | np.ndarray:
    """Return the slot of all moves where it is one, else that of each."""
    if isinstance(field, Affine):
        return field.values(shape) if field.digits else field.base
    return field


def _rows(n: int, lists: list[_List]) -> np.ndarray:
    """Return a number, bytes and copies of each operation, pair of ``n`` nodes and channel. int64 of shape (3, rows)."""
    numbers, sizes, copies = [], [], []
    for moves in lists:
        block = moves.block
        numbers.append(((block.channel * len(Op) + block.op) * n + moves.src) * n + moves.dst)
        sizes.append(moves.size_bytes)
        copies.append(np.full(len(moves.src), block.multicast * moves.blocks))
    keys, which = np.unique(np.concatenate(numbers), return_inverse=True)
    sums = [np.bincount(which, weights=np.concatenate(each), minlength=len(keys)) for each in (sizes, copies)]
    return np.stack((keys, *(each.astype(np.int64) for each in sums)))
