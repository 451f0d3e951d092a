"""One exchange: chunks with their paths, runs of them, and the programs that runs are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.synthesis.flow_all_to_all._paths import paths, sizes
from ringwright.algorithms.synthesis.flow_all_to_all._rounds import ChunkRelay
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.flow_all_to_all._choice import ChosenRun
    from ringwright.algorithms.synthesis.flow_all_to_all._classes import Classes
    from ringwright.algorithms.synthesis.flow_all_to_all._rounds import Path, SentMessages
    from ringwright.bounds.concurrent_flow import ConcurrentFlow
    from ringwright.engines.machine import Machine
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology


class Question:
    """Blocks of a collective along a flow. Its *items* are parts of blocks: of one source in each orbit of turns."""

    def __init__(
        self,
        collective: Collective,
        topology: Topology,
        blocks: np.ndarray,
        flow: ConcurrentFlow,
        folded: Classes,
        machine: Machine,
        alpha: str,
    ) -> None:
        self.collective, self.topology, self.blocks = collective, topology, blocks
        self.folded, self.machine, self.alpha = folded, machine, alpha
        self.arcs, self.p, self.least_s = flow.arcs, collective.p, flow.time_s
        made = paths(flow)
        self.parts = max((each.parts for each in made), default=1)
        turns = self.arcs.symmetry
        along_axes = turns is not None and turns.table is None
        items = [
            (target if along_axes else (target - each.source) % self.p, each.source, target, part, path, share)
            for each in made
            for target, parts in each.by_target.items()
            for part, (path, share) in enumerate(parts + [(parts[0][0], 0.0)] * (self.parts - len(parts)))
        ]
        # First to the next rank, then to the one behind: so that no two ranks send to one at a time.
        items.sort(key=lambda item: item[:4])
        self.source, self.target, self.part = (np.array([item[at] for item in items], np.int64) for at in (1, 2, 3))
        self.paths: list[Path] = [item[4] for item in items]
        self.share = [item[5] for item in items]

    @property
    def every(self) -> np.ndarray:
        """The turns that repeat an item."""
        return np.arange(1 if self.arcs.symmetry is None else self.arcs.symmetry.order)

    @cached_property
    def steps_of_chunks(self) -> int:
        """Arcs on the paths of all items together."""
        return sum(map(len, self.paths))

    @property
    def moves(self) -> int:
        """Moves of a program that cuts no part into pieces."""
        return self.steps_of_chunks * len(self.every)

    @property
    def most_pieces(self) -> int:
        """Pieces of a part that are an element at the least."""
        full = self.blocks[self.blocks > 0]
        return max(1, int(full.min()) // self.collective.unit_bytes // self.parts) if len(full) else 1

    def sizes(self, pieces: int) -> np.ndarray:
        """Return the bytes of each chunk, int64 of shape (blocks, parts * pieces)."""
        shares: list[list[float]] = [[] for _ in self.blocks]
        for item, share in enumerate(self.share):
            for block in self._block(item).tolist():
                shares[block].append(share)
        return sizes(self.blocks, shares, self.parts, pieces, self.collective.unit_bytes)

    def _block(self, item: int) -> np.ndarray:
        """Return the blocks of an item, turned every way."""
        blocks: np.ndarray = self.turned(self.source[item]) * self.p + self.turned(self.target[item])
        return blocks

    def turned(self, rank: np.ndarray) -> np.ndarray:
        """Return a rank, turned every way; int64."""
        if self.arcs.symmetry is None:
            return np.atleast_1d(rank)
        return self.arcs.symmetry.turned(rank, self.every)

    def run(self, pieces: int, merge: int, *, farthest: bool) -> SentMessages:
        """Return one run; chunk ``item * pieces + piece`` of it stands for its turns."""
        table = self.sizes(pieces)
        largest = [
            int(table[self._block(item), self.part[item] * pieces + piece].max())
            for item in range(len(self.paths))
            for piece in range(pieces)
        ]
        routes = [tuple(self.folded.of_arc[list(path)].tolist()) for path in self.paths for _ in range(pieces)]
        return ChunkRelay(self.folded.net, routes, largest, merge, self.folded.times, farthest=farthest).run()

    def program(self, chosen: ChosenRun) -> tuple[Program, tuple[np.ndarray, np.ndarray]]:
        """Return a run as a program, and start and end of its messages in the order of its steps."""
        sent, table = chosen.sent, self.sizes(chosen.pieces)
        layout = cut(self.collective, self.parts * chosen.pieces, shares=table.ravel())
        step = np.array(sent.step, np.int64)
        order = np.argsort(step, kind="stable")
        bounds = np.searchsorted(step[order], np.arange(int(step.max(initial=-1)) + 2))
        moves = _Moves(self, chosen)

        def steps() -> Iterator[Step]:
            for begin, end in zip(bounds.tolist(), bounds[1:].tolist(), strict=False):
                src, dst, chunk = moves.of(order[begin:end].tolist())
                yield Step((explicit(Op.SEND, src, dst, chunk),), "exchange")

        flat, path = table.ravel(), 0.0
        for begin, end in zip(bounds.tolist(), bounds[1:].tolist(), strict=False):
            src, dst, chunk = moves.of(order[begin:end].tolist())
            _, pair = np.unique(src * self.p + dst, return_inverse=True)
            path += float(np.bincount(pair.ravel(), weights=flat[chunk]).max(initial=0.0))
        total = sum(
            float(flat[self.chunks(item, piece, chosen.pieces)].sum()) * len(self.paths[item])
            for item in range(len(self.paths))
            for piece in range(chosen.pieces)
        )
        even = bool((table == table[0]).all())
        cost = Cost((Term(len(bounds) - 1, path),), total, is_even=even)
        program = Program("flow-all-to-all", self.collective, layout, steps, len(bounds) - 1, cost)
        times = [np.repeat(np.array(each, np.int64)[order], len(self.every)) for each in (sent.start, sent.end)]
        return program, (times[0], times[1])

    def chunks(self, item: int, piece: int, pieces: int) -> np.ndarray:
        """Return the chunks of a piece of an item, turned every way; int64."""
        numbers: np.ndarray = (self._block(item) * self.parts + self.part[item]) * pieces + piece
        return numbers


class _Moves:
    """The moves of messages of a run: all turns of a message one after the other, of each its chunks."""

    def __init__(self, question: Question, chosen: ChosenRun) -> None:
        self.question, self.chosen = question, chosen

    def of(self, messages: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return source, target and chunk of every move, int64."""
        made = [self._message(message) for message in messages]
        src, dst, chunk = (np.concatenate(column) for column in zip(*made, strict=True))
        return src, dst, chunk

    def _message(self, message: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        question, pieces = self.question, self.chosen.pieces
        arcs = question.arcs
        columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for number, done in self.chosen.sent.chunks[message]:
            item, piece = divmod(number, pieces)
            arc = question.paths[item][done]
            ends = question.turned(arcs.src[arc]), question.turned(arcs.dst[arc])
            columns.append((*ends, question.chunks(item, piece, pieces)))
        src, dst, chunk = (np.stack(column, axis=1) for column in zip(*columns, strict=True))
        if arcs.symmetry is not None:  # of turned chunks those go together that leave the same rank
            order = np.argsort(src, axis=0, kind="stable")
            src, dst, chunk = (np.take_along_axis(each, order, axis=0) for each in (src, dst, chunk))
        return src.ravel(), dst.ravel(), chunk.ravel()
