"""Runs as steps: messages in the order of time, forwards, or backwards where data are collected.

Backwards two messages that add to one chunk may overlap in time, though each is a step of its own. Then the second brings its
data into a slot of scratch, from which its rank adds them itself: else it would wait until the first had arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringwright.program import Block, Cost, Op, Step, Term, explicit

if TYPE_CHECKING:
    from ringwright.algorithms.synthesis.expand._loop import Matched
    from ringwright.algorithms.synthesis.expand._search import GreedyPhase
    from ringwright.program import Layout


class RunMoves:
    """The messages of a run as moves: per chunk that a message carries its source, target, message and copy of the slots.

    ``start`` and ``end`` (int64 ps, by message of the run) are when it is under way, as the phase begins at 0.
    """

    def __init__(self, phase: GreedyPhase, run: Matched) -> None:
        step, number = run.step.astype(np.int64), np.arange(len(run.step))
        self.src, self.dst = phase.net.src[run.arc].astype(np.int64), phase.net.dst[run.arc].astype(np.int64)
        self.depth = int(step.max(initial=-1)) + 1
        if phase.collects:
            self.src, self.dst, step, number = self.dst, self.src, self.depth - 1 - step, number[::-1]
        self.op, self.label = (Op.REDUCE, "collect") if phase.collects else (Op.SEND, "spread")
        order = number[np.argsort(step[number], kind="stable")]
        counts = np.diff(run.starts)[order]
        ends = np.cumsum(counts)
        at = np.repeat(run.starts[:-1][order] - (ends - counts), counts) + np.arange(len(run.pieces))
        self.chunk = run.pieces[at].astype(np.int64)
        self.message = np.repeat(order, counts)
        self.bounds = np.searchsorted(step[self.message], np.arange(self.depth + 1))
        self.copy = np.zeros(len(at), np.int64)
        self.makespan, self.start, self.end = run.makespan, run.start, run.end
        if phase.collects:
            self.start, self.end = run.makespan - run.end, run.makespan - run.start
            self._step_aside(step, self.start, self.end)
        self.copies = int(self.copy.max(initial=0)) + 1

    def _step_aside(self, step: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        """Give a slot of scratch to what would have to wait for an earlier step that adds to the same chunk."""
        mine = self.message
        order = np.lexsort((np.arange(len(mine)), self.chunk, self.dst[mine]))
        key = self.dst[mine][order] * (int(self.chunk.max(initial=0)) + 1) + self.chunk[order]
        fresh = np.diff(key, prepend=-1) != 0
        group, first = np.cumsum(fresh) - 1, np.flatnonzero(fresh)
        stop, begin = end[mine][order].astype(np.float64), start[mine][order].astype(np.float64)
        apart = 2.0 * (float(end.max(initial=0)) + 1.0)
        until = np.maximum.accumulate(stop + group * apart) - group * apart
        before = np.concatenate(([-1.0], until[:-1]))
        before[first] = -1.0
        aside = (before > begin) & (step[mine][order] != step[mine][order][first][group])
        count = np.cumsum(aside)
        self.copy[order] = np.where(aside, count - (count - aside)[first][group], 0)

    @property
    def n_steps(self) -> int:
        """Steps of messages, and of what ranks add themselves."""
        aside = np.searchsorted(self.bounds, np.flatnonzero(self.copy), side="right")
        return self.depth + len(np.unique(aside))

    def steps(self, n_chunks: int) -> Iterator[Step]:
        """Yield the steps in the order of time."""
        src, dst = self.src[self.message], self.dst[self.message]
        to = self.chunk + self.copy * n_chunks
        for begin, end in zip(self.bounds.tolist(), self.bounds[1:].tolist(), strict=False):
            mine = np.arange(begin, end)
            beside = self.copy[mine] > 0
            parts = np.split(mine, np.flatnonzero(np.diff(beside)) + 1)  # messages stay in the order of the run
            kinds = [(Op.SEND if self.copy[at[0]] else self.op, at) for at in parts]
            blocks = [explicit(op, src[at], dst[at], self.chunk[at], to[at]) for op, at in kinds]
            yield Step(tuple(blocks), self.label)
            aside = mine[self.copy[mine] > 0]
            if len(aside):
                yield Step(tuple(self._added(aside, dst, to)), self.label)

    def named(self) -> np.ndarray:
        """Return the messages in the order in which the steps name them, int64."""
        _, first = np.unique(self.message, return_index=True)
        named: np.ndarray = self.message[np.sort(first)]
        return named

    def _added(self, aside: np.ndarray, dst: np.ndarray, to: np.ndarray) -> Iterator[Block]:
        """Yield what ranks add of their scratch, on a channel of its own for each message that a rank has got."""
        messages, owner = np.unique(self.message[aside], return_inverse=True)
        rank = self.dst[messages]
        order = np.argsort(rank, kind="stable")
        first = np.searchsorted(rank[order], rank[order])
        channel = np.empty(len(messages), np.int64)
        channel[order] = np.arange(len(messages)) - first
        channels = channel[owner.ravel()]
        for each in np.unique(channels).tolist():
            at = aside[channels == each]
            yield explicit(Op.REDUCE, dst[at], dst[at], to[at], self.chunk[at], channel=each)

    def largest(self, layout: Layout) -> tuple[float, float]:
        """Return the bytes of the largest message of each step, added up, and all bytes."""
        sizes = layout.bytes_of(self.chunk)
        messages = np.bincount(self.message, weights=sizes)
        step = np.zeros(len(messages), np.int64)
        step[self.message] = np.searchsorted(self.bounds, np.arange(len(self.message)), side="right") - 1
        most = np.zeros(self.depth)
        np.maximum.at(most, step, messages)
        return float(most.sum()), float(sizes.sum())


def cost(moves: Sequence[RunMoves], layout: Layout) -> Cost:
    """Return the declared cost: in each step the largest message, and all that is sent."""
    largest = [each.largest(layout) for each in moves]
    added = sum(path for each, (path, _) in zip(moves, largest, strict=True) if each.op is Op.REDUCE)
    term = Term(sum(each.depth for each in moves), sum(path for path, _ in largest))
    return Cost((term,), sum(sent for _, sent in largest), added, is_even=len(layout.chunk_bytes) == 1)
