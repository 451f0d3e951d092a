"""Runs as steps: messages in the order of time, what is sent and what is added.

Two messages that add to one chunk may overlap in time, though each is a step of its own. Then the second brings its data into a
slot of scratch, from which its rank adds them itself: else it would wait until the first had arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.program import Block, Cost, Op, Step, Term, explicit

if TYPE_CHECKING:
    from ringwright.model.program import Layout


@dataclass(frozen=True)
class RunMessages:
    """The messages of a run as moves: ``src`` to ``dst`` (int64), whether they add (``adds``, bool), ``step`` (int64).

    ``start`` and ``end`` (int64 ps) are when each is under way. All of shape (messages,).
    """

    src: np.ndarray
    dst: np.ndarray
    adds: np.ndarray
    step: np.ndarray
    start: np.ndarray
    end: np.ndarray


class RunMoves:
    """Messages with the chunks that they carry, in the order of their steps, and the copy of the slots that each goes to.

    ``message`` and ``chunk`` (int64 of shape (moves,)) are in the order of steps. ``is_loose``: no two messages of a step meet,
    so that those that add come first in each.
    """

    def __init__(self, run: RunMessages, message: np.ndarray, chunk: np.ndarray, *, is_loose: bool = False) -> None:
        self.run, self.message, self.chunk = run, message, chunk
        self.depth = int(run.step.max(initial=-1)) + 1
        self.bounds = np.searchsorted(run.step[message], np.arange(self.depth + 1))
        self.copy = np.zeros(len(message), np.int64)
        self._step_aside()
        if is_loose:
            order = np.lexsort((self._is_sent, run.step[message]))
            self.message, self.chunk, self.copy = (each[order] for each in (self.message, self.chunk, self.copy))
        self.copies = int(self.copy.max(initial=0)) + 1

    def _step_aside(self) -> None:
        """Give a slot of scratch to what would have to wait for an earlier step that adds to the same chunk."""
        mine, step, end = self.message, self.run.step, self.run.end
        if not self.run.adds.any():
            return
        order = np.lexsort((np.arange(len(mine)), self.chunk, self.run.dst[mine]))
        key = self.run.dst[mine][order] * (int(self.chunk.max(initial=0)) + 1) + self.chunk[order]
        fresh = np.diff(key, prepend=-1) != 0
        group, first = np.cumsum(fresh) - 1, np.flatnonzero(fresh)
        stop, begin = end[mine][order].astype(np.float64), self.run.start[mine][order].astype(np.float64)
        apart = 2.0 * (float(end.max(initial=0)) + 1.0)
        until = np.maximum.accumulate(stop + group * apart) - group * apart
        before = np.concatenate(([-1.0], until[:-1]))
        before[first] = -1.0
        aside = (before > begin) & (step[mine][order] != step[mine][order][first][group])
        count = np.cumsum(aside)
        self.copy[order] = np.where(aside, count - (count - aside)[first][group], 0)

    @property
    def _is_sent(self) -> np.ndarray:
        """Whether each move is sent, not added: it may be sent to scratch. bool of shape (moves,)."""
        sent: np.ndarray = ~self.run.adds[self.message] | (self.copy > 0)
        return sent

    @property
    def n_steps(self) -> int:
        """Steps of messages, and of what ranks add themselves."""
        aside = np.searchsorted(self.bounds, np.flatnonzero(self.copy), side="right")
        return self.depth + len(np.unique(aside))

    def steps(self, n_chunks: int) -> Iterator[Step]:
        """Yield the steps in the order of time."""
        src, dst, adds = (each[self.message] for each in (self.run.src, self.run.dst, self.run.adds))
        to = self.chunk + self.copy * n_chunks
        sent = self._is_sent
        for begin, end in pairwise(self.bounds.tolist()):
            # Messages stay in the order of the run.
            cuts = (begin, *(begin + 1 + np.flatnonzero(np.diff(sent[begin:end]))).tolist(), end)
            blocks = [
                explicit(Op.SEND if sent[a] else Op.REDUCE, src[a:b], dst[a:b], self.chunk[a:b], to[a:b])
                for a, b in pairwise(cuts)
            ]
            collects, spreads = bool(adds[begin:end].any()), not adds[begin:end].all()
            label = "collect and spread" if collects and spreads else "collect" if collects else "spread"
            yield Step(tuple(blocks), label)
            aside = begin + np.flatnonzero(self.copy[begin:end])
            if len(aside):
                yield Step(tuple(self._added(aside, dst, to)), label)

    def named(self) -> np.ndarray:
        """Return the messages in the order in which the steps name them, int64 of shape (messages,)."""
        _, first = np.unique(self.message, return_index=True)
        named: np.ndarray = self.message[np.sort(first)]
        return named

    def _added(self, aside: np.ndarray, dst: np.ndarray, to: np.ndarray) -> Iterator[Block]:
        """Yield what ranks add of their scratch, on a channel of its own for each chunk that a rank has got.

        None then waits until another of the same message can be added.
        """
        rank = dst[aside]
        order = np.argsort(rank, kind="stable")
        channel = np.empty(len(aside), np.int64)
        channel[order] = np.arange(len(aside)) - np.searchsorted(rank[order], rank[order])
        for each in range(int(channel.max()) + 1):
            at = aside[channel == each]
            yield explicit(Op.REDUCE, dst[at], dst[at], to[at], self.chunk[at], channel=each)

    def largest(self, layout: Layout) -> tuple[float, float, float]:
        """Return the bytes of the largest message of each step, added up, the same of those that add, and all bytes."""
        sizes = layout.bytes_of(self.chunk)
        messages = np.bincount(self.message, weights=sizes, minlength=len(self.run.step))
        most, adding = np.zeros(self.depth), np.zeros(self.depth)
        np.maximum.at(most, self.run.step, messages)
        np.maximum.at(adding, self.run.step, messages * self.run.adds)
        return float(most.sum()), float(adding.sum()), float(sizes.sum())


def cost(moves: Sequence[RunMoves], layout: Layout) -> Cost:
    """Return the declared cost: in each step the largest message, and all that is sent."""
    paths, added, sent = (sum(column) for column in zip(*(each.largest(layout) for each in moves), strict=True))
    term = Term(sum(each.depth for each in moves), paths)
    return Cost((term,), sent, added, is_even=len(layout.chunk_bytes) == 1)


def entries(starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return where the entries of rows lie in what ``starts`` cuts, row after row.

    int64 of shape (entries,), for ``rows`` int64 of shape (rows,).
    """
    counts = np.diff(starts)[rows]
    ends = np.cumsum(counts)
    at: np.ndarray = np.repeat(starts[:-1][rows] - (ends - counts), counts) + np.arange(int(counts.sum()))
    return at
