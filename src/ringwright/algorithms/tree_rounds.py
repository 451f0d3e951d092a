"""From the moves of trees to steps: pieces one behind the other, messages merged.

A *round* carries a piece one arc further down every tree at once. What goes between two ranks in one round is one message,
whatever trees and roots it belongs to: few large messages are what makes forests fast for small sizes. Trees that collect are
read backwards, from the leaves to the root, and add.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.collective import split
from ringwright.model.program import Affine, Block, Cost, Layout, Op, Step, Term, explicit

if TYPE_CHECKING:
    from ringwright.algorithms.tree_moves import TreeMoves
    from ringwright.bounds.symmetry import Turns
    from ringwright.model.collective import Collective


@dataclass(frozen=True)
class TreeRounds:
    """Phases of tree_moves over the blocks of a collective, in pieces; a piece goes on when ``streams`` - 1 others have gone.

    ``sizes`` are those of the pieces, relative to each other; ``ends`` the cuts of each root's block (of root 0 for all, with
    turns); ``blocks`` the bytes of each root's block in the order of the roots. ``merged``: what two ranks have for each other
    in a round is one message.
    """

    collective: Collective
    phases: tuple[TreeMoves, ...]
    ends: dict[int, list[float]]
    sizes: tuple[int, ...]
    streams: int
    blocks: np.ndarray
    merged: bool = True
    labels: tuple[str, ...] = field(default=("",))
    is_cut_evenly: bool = False  # chunk (root, piece, part): those of a tree lie side by side, and all are of one size

    @property
    def pieces(self) -> int:
        """Pieces, one behind the other."""
        return len(self.sizes)

    @cached_property
    def parts(self) -> int:
        """Chunks of a block: parts times pieces."""
        return (len(next(iter(self.ends.values()))) - 1) * self.pieces

    @cached_property
    def roots(self) -> list[int]:
        """The roots in the order of their blocks."""
        return list(range(len(self.blocks))) if self.turns is not None else sorted(self.ends)

    def _of_block(self, part: np.ndarray, piece: int) -> np.ndarray:
        """Return which chunk of its block each part's piece is, int64."""
        if self.is_cut_evenly:
            return piece * (self.parts // self.pieces) + part
        return part * self.pieces + piece

    @property
    def turns(self) -> Turns | None:
        """The turns of the machine that the trees were made by."""
        return self.phases[0].turns

    @cached_property
    def layout(self) -> Layout:
        """Chunk ``(root, part, piece)``; blocks of equal size and cuts share one list of sizes."""
        unit = self.collective.unit_bytes
        known: dict[tuple[int, tuple[float, ...]], np.ndarray] = {}
        rows = []
        for at, root in enumerate(self.roots):
            points = self.ends[root if root in self.ends else 0]
            key = int(self.blocks[at]), tuple(points)
            if key not in known:
                cut_up = _sizes(key[0], points, self.sizes, unit)
                known[key] = split(key[0], self.parts, unit) if self.is_cut_evenly else cut_up
            rows.append(known[key])
        sizes = rows[0] if len(known) == 1 else np.concatenate(rows)
        n_chunks = self.parts * len(self.roots)
        of_block = n_chunks // self.collective.n_blocks
        return Layout(n_chunks, sizes, of_block, n_chunks)

    @cached_property
    def offsets(self) -> list[int]:
        """Round in which each phase begins: the one before it is done with its first piece."""
        offsets = [0]
        for phase in self.phases[:-1]:
            offsets.append(offsets[-1] + phase.rounds * self.streams)
        return offsets

    @cached_property
    def n_steps(self) -> int:
        """Steps of all rounds."""
        return self.n_rounds if self.merged else sum(1 for _ in self.steps())

    @property
    def n_rounds(self) -> int:
        """Rounds of all phases and pieces."""
        return self.offsets[-1] + (self.phases[-1].rounds - 1) * self.streams + self.pieces

    def steps(self) -> Iterator[Step]:
        """Yield the rounds; without merging each in as many steps as two ranks have messages for each other."""
        for number in range(self.n_rounds):
            turns: list[list[Block]] = [[]]
            label, begin = "", 0
            for at, (phase, offset) in enumerate(zip(self.phases, self.offsets, strict=True)):
                for depth, piece in self._moving(phase, number - offset):
                    label = label or self.labels[at % len(self.labels)]
                    for turn, mine in enumerate(self._groups[id(phase)][depth], begin):
                        turns += [[] for _ in range(turn + 1 - len(turns))]
                        turns[turn] += self._blocks(phase, mine, piece)
                    # What is apart waits for nothing else: another piece or depth between the same two ranks is another message.
                    begin = 0 if self.merged else len(turns)
            for blocks in turns:
                yield Step(tuple(blocks), label)

    def _apart(self, phase: TreeMoves, moves: np.ndarray) -> list[np.ndarray]:
        """Return the moves of a depth in groups with one message for any two ranks; one group where all are merged.

        Parts of a block that go down one tree are one message.
        """
        if self.merged or not len(moves):
            return [moves]
        key = _pairs(phase, moves)
        tree = np.unique(np.stack((phase.root[moves], phase.tree[moves])), axis=1, return_inverse=True)[1].ravel()
        order = np.lexsort((np.arange(len(moves)), tree, key))
        fresh = np.diff(key[order], prepend=-1) != 0
        another = fresh | (np.diff(tree[order], prepend=-1) != 0)
        count, first = np.cumsum(another) - 1, np.flatnonzero(fresh)
        turn = np.empty(len(moves), np.int64)
        turn[order] = count - np.repeat(count[first], np.diff([*first, len(moves)]))
        return [moves[turn == each] for each in range(int(turn.max()) + 1)]

    def _moving(self, phase: TreeMoves, number: int) -> Iterator[tuple[int, int]]:
        """Yield each depth that is under way in a round, with its piece."""
        for depth in range(phase.rounds):
            piece = number - self.streams * (phase.rounds - 1 - depth if phase.collects else depth)
            if 0 <= piece < self.pieces:
                yield depth, piece

    @cached_property
    def _by_depth(self) -> dict[int, list[np.ndarray]]:
        return {
            id(phase): [np.flatnonzero(phase.depth == depth) for depth in range(phase.rounds)] for phase in self.phases
        }

    @cached_property
    def _groups(self) -> dict[int, list[list[np.ndarray]]]:
        """The moves of each depth as ``_apart`` makes groups of them: the same for every piece, so they are made once."""
        return {id(phase): [self._apart(phase, moves) for moves in self._by_depth[id(phase)]] for phase in self.phases}

    def _blocks(self, phase: TreeMoves, moves: np.ndarray, piece: int) -> Iterator[Block]:
        op = Op.REDUCE if phase.collects else Op.SEND
        src, dst = phase.src[moves], phase.dst[moves]
        if phase.collects:
            src, dst = dst, src
        if phase.turns is None:
            yield explicit(op, src, dst, self._chunks(phase, moves, piece))
            return
        chunks = self._of_block(phase.part[moves], piece)
        for here, there, chunk in zip(src.tolist(), dst.tolist(), chunks.tolist(), strict=True):
            yield self._turned(op, phase.turns, here, there, chunk)

    def _turned(self, op: Op, turns: Turns, here: int, there: int, chunk: int) -> Block:
        """Return the moves of one arc for all roots: by each rank over the same distance, the chunk of the root as far behind it.

        So blocks of one direction differ in where their chunks begin, and in nothing else.
        """
        axes = [(size, weight) for (_, size), weight in zip(turns.axes, turns.weights, strict=True) if size > 1]

        def digits(rank: int) -> list[int]:
            return [rank // weight % size for size, weight in axes]

        start, end = digits(here), digits(there)
        source = Affine(tuple((1, 0, size, weight) for size, weight in axes))
        far = zip(start, end, axes, strict=True)
        target = Affine(tuple((1, (last - first) % size, size, weight) for first, last, (size, weight) in far))
        slots = tuple(
            (1, -at % size, size, weight * self.parts) for at, (size, weight) in zip(start, axes, strict=True)
        )
        return Block(op, tuple(size for size, _ in axes), source, target, Affine(slots, chunk))

    def cost(self) -> Cost:
        """Return the declared cost: in each round the pair of ranks with most to do, all that is sent, what is added on the way.

        Merged, a pair has one message for each phase and depth at the same time; apart it has one after the other.
        """
        sent = path = adding = 0.0
        messages = 0
        for number in range(self.n_rounds):
            rows = [
                (phase, moves, self.layout.bytes_of(self._chunks(phase, moves, piece)).astype(float))
                for phase, offset in zip(self.phases, self.offsets, strict=True)
                for depth, piece in self._moving(phase, number - offset)
                for moves in (self._by_depth[id(phase)][depth],)
            ]
            sent += sum(float(size.sum()) * (1 if phase.turns is None else len(self.roots)) for phase, _, size in rows)
            adding += max((_by_pair(*row)[1] for row in rows if row[0].collects), default=0.0)
            if self.merged:
                messages, path = messages + 1, path + max((_by_pair(*row)[1] for row in rows), default=0.0)
            else:
                count, size = _in_a_row(rows)
                messages, path = messages + count, path + size
        return Cost((Term(messages, path),), sent, adding, is_even=self.is_even)

    def _chunks(self, phase: TreeMoves, moves: np.ndarray, piece: int) -> np.ndarray:
        index = np.searchsorted(np.array(self.roots), phase.root[moves])
        chunks: np.ndarray = index * self.parts + self._of_block(phase.part[moves], piece)
        return chunks

    @cached_property
    def is_even(self) -> bool:
        """Whether all chunks of a place are of one size in all blocks."""
        return len(self.layout.chunk_bytes) <= self.parts


def _by_pair(phase: TreeMoves, moves: np.ndarray, size: np.ndarray) -> tuple[int, float]:
    """Return the most moves and bytes between two ranks, up to turns of the machine."""
    if not len(moves):
        return 0, 0.0
    key = np.unique(_pairs(phase, moves), return_inverse=True)[1].ravel()
    return int(np.bincount(key).max()), float(np.bincount(key, weights=size).max())


def _in_a_row(rows: Sequence[tuple[TreeMoves, np.ndarray, np.ndarray]]) -> tuple[int, float]:
    """Return the most moves and bytes that one rank has for another over several phases and depths; those that collect go up."""
    keys, sizes = [], []
    for phase, moves, size in rows:
        up = dataclasses.replace(phase, src=phase.dst, dst=phase.src) if phase.collects else phase
        keys.append(_pairs(up, moves))
        sizes.append(size)
    if not sum(map(len, keys)):
        return (1 if rows else 0), 0.0
    key = np.unique(np.concatenate(keys), return_inverse=True)[1].ravel()
    return int(np.bincount(key).max()), float(np.bincount(key, weights=np.concatenate(sizes)).max())


def _pairs(phase: TreeMoves, moves: np.ndarray) -> np.ndarray:
    """Return a number for each move that is equal for those between the same two ranks, up to turns of the machine."""
    here, there = phase.src[moves], phase.dst[moves]
    if phase.turns is not None:
        return phase.turns.kinds(here, there)
    key: np.ndarray = here * (int(max(phase.src.max(), phase.dst.max())) + 1) + there
    return key


def _sizes(block: int, points: list[float], pieces: tuple[int, ...], unit: int) -> np.ndarray:
    """Return the bytes of each chunk of a block that is cut at ``points``, each part into pieces: whole units, all of it."""
    units, rest = divmod(block, unit)
    ends = np.cumsum((0, *pieces)) / sum(pieces)
    edges = [begin + (end - begin) * ends[:-1] for begin, end in pairwise(points)]
    whole = np.floor(units * np.concatenate(edges) + 1e-6).astype(np.int64)
    sizes = np.diff(np.append(whole, units)) * unit
    sizes[-1] += rest
    return sizes
