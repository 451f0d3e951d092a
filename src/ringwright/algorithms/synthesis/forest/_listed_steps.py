"""Trees whose messages are in the order of a run: one piece of them as moves on arcs, and the steps of a run over all pieces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.declared_order import in_order
from ringwright.algorithms.list_schedule import PieceMoves
from ringwright.algorithms.networks import network_of
from ringwright.algorithms.run_moves import RunMessages, RunMoves, cost, entries
from ringwright.engines.flat import gather, places
from ringwright.engines.hazards import Edges
from ringwright.model.program import Layout, Program

if TYPE_CHECKING:
    from ringwright.algorithms.arcs_in_use import TimedMessages
    from ringwright.algorithms.networks import ArcNetwork
    from ringwright.engines.machine import Machine
    from ringwright.engines.messages import Pieces


@dataclass(frozen=True, eq=False)
class PieceOfTrees:
    """The messages of one piece of all trees as moves; those that add have arcs of their own.

    ``adds`` (bool of shape (arcs,)) says which arcs these are, ``step`` (int64 of shape (moves,)) when each move comes in the
    rounds of the trees; ``part_starts`` cuts ``parts``, the parts of blocks that each carries (both int64).
    """

    net: ArcNetwork
    moves: PieceMoves
    adds: np.ndarray
    step: np.ndarray
    part_starts: np.ndarray
    parts: np.ndarray

    def size_bytes(self, layout: Layout, pieces: int) -> np.ndarray:
        """Return the bytes of every move of every piece, piece by piece, for chunks numbered (part, piece).

        int64 of shape (pieces * moves,).
        """
        sizes = layout.bytes_of(np.arange(layout.n_chunks)).reshape(-1, pieces)
        each: np.ndarray = np.add.reduceat(sizes[self.parts], self.part_starts[:-1], axis=0)
        return np.ascontiguousarray(each.T).ravel()


def piece_of(program: Program, made: Machine) -> PieceOfTrees:
    """Return the moves of a program of trees in one piece, whose chunks are the parts of blocks."""
    pieces = gather(program)
    n = len(pieces.src)
    keys = (pieces.src * program.n_nodes + pieces.dst) * 2 + pieces.adds
    _, first, arc = np.unique(keys, return_index=True, return_inverse=True)
    src, dst, adds = pieces.src[first], pieces.dst[first], pieces.adds[first]
    order = _feeding(pieces).order(n)
    by_message = np.argsort(pieces.message, kind="stable")
    return PieceOfTrees(
        network_of(made, places(program), src, dst, adds),
        PieceMoves(arc.astype(np.int32), order.next_starts, order.nexts, order.waits),
        adds,
        pieces.step.astype(np.int64),
        np.searchsorted(pieces.message[by_message], np.arange(n + 1)),
        pieces.reads[by_message] % program.layout.slots,
    )


def _feeding(pieces: Pieces) -> Edges:
    """Return which message waits for which: for all of earlier steps that bring what it reads, and for no others.

    What adds to one chunk needs no order among itself: ``RunMoves`` sees to it that it need not wait.
    """
    by_slot = np.argsort(pieces.writes, kind="stable")
    slots = pieces.writes[by_slot]
    first, last = np.searchsorted(slots, pieces.reads, "left"), np.searchsorted(slots, pieces.reads, "right")
    after = np.repeat(pieces.message, last - first)
    ends = np.cumsum(last - first)
    at = np.repeat(first - (ends - (last - first)), last - first) + np.arange(len(after))
    before = pieces.message[by_slot[at]]
    earlier = pieces.step[before] < pieces.step[after]
    n = len(pieces.src)
    keys = np.unique(before[earlier] * n + after[earlier])
    return Edges(keys // n, keys % n)


@dataclass(frozen=True, eq=False)
class ListedSteps:
    """A run over the pieces of trees, as steps; ``layout`` has chunks numbered (part, piece)."""

    piece: PieceOfTrees
    run: TimedMessages
    pieces: int

    @cached_property
    def moves(self) -> RunMoves:
        """The messages of the run with their chunks, in the order of steps, those of a step in the order of the run."""
        run, net = self.run, self.piece.net
        order = np.argsort(run.step, kind="stable")
        number, move = np.divmod(run.pieces[entries(run.starts, order)].astype(np.int64), len(self.piece.moves.arc))
        counts = np.diff(self.piece.part_starts)[move]
        message = np.repeat(np.repeat(order, np.diff(run.starts)[order]), counts)
        chunk = self.piece.parts[entries(self.piece.part_starts, move)] * self.pieces + np.repeat(number, counts)
        src, dst = (each[run.arc].astype(np.int64) for each in (net.src, net.dst))
        adds, step = self.piece.adds[run.arc], run.step.astype(np.int64)
        return RunMoves(RunMessages(src, dst, adds, step, run.start, run.end), message, chunk, is_loose=True)

    def ordered(self, program: Program, made: Machine) -> Program:
        """Return a program of the same pieces with the steps of the run, in an order that is declared.

        So the engine serves messages as the run did.
        """
        moves, layout = self.moves, program.layout
        layout = Layout(layout.n_chunks, layout.chunk_bytes, layout.parts, layout.n_chunks * moves.copies)
        steps, named = (
            list(moves.steps(layout.n_chunks)),
            moves.named(),
        )  # read again and again by whoever times and checks them
        free = Program(
            program.name,
            program.collective,
            layout,
            lambda: steps,
            len(steps),
            cost([moves], layout),
            knobs=program.knobs,
        )
        return in_order(free, made, moves.run.start[named], moves.run.end[named])
