"""Segments up and down a tree, one behind the other: the shared part of all pipelined trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ringwright.model.program import Block, Op, Step, explicit


class PipelinedTree:
    """A tree over ranks by ``parents`` (-1 at the root); segments leave the leaves one step after the other.

    A rank sends a segment up when the farthest leaf below it could have reached it, and down as soon as it came.
    """

    def __init__(self, parents: Sequence[int]) -> None:
        self.parents = np.asarray(parents, np.int64)
        self.ranks = np.flatnonzero(self.parents >= 0)
        self.depth = _depths(self.parents)
        self.height = np.zeros(len(self.parents), np.int64)
        for rank in np.argsort(-self.depth, kind="stable"):
            if self.parents[rank] >= 0:
                self.height[self.parents[rank]] = max(self.height[self.parents[rank]], self.height[rank] + 1)

    @property
    def top(self) -> int:
        """Edges from the root to its farthest leaf."""
        return int(self.depth.max(initial=0))

    def n_steps(self, segments: int, *, up: bool = True, down: bool = True) -> int:
        """Return the steps that ``segments`` take; nothing moves in a tree of one."""
        if not len(self.ranks):
            return 0
        return segments - 1 + self.top * (up + down)

    def steps(
        self,
        segments: int,
        first: int = 0,
        *,
        up: bool = True,
        down: bool = True,
        channel: int = 0,
        label: str = "tree",
    ) -> Iterator[Step]:
        """Yield the steps; segment s is chunk ``first + s``."""
        parents, ranks = self.parents[self.ranks], self.ranks
        rise, fall = self.height[ranks], self.depth[ranks] - 1 + (self.top if up else 0)
        for step in range(self.n_steps(segments, up=up, down=down)):
            blocks: list[Block] = []
            if up:
                moving = _under_way(step - rise, segments)
                blocks += _moves(Op.REDUCE, ranks[moving], parents[moving], first + (step - rise)[moving], channel)
            if down:
                moving = _under_way(step - fall, segments)
                blocks += _moves(Op.SEND, parents[moving], ranks[moving], first + (step - fall)[moving], channel)
            yield Step(tuple(blocks), label)


def _depths(parents: np.ndarray) -> np.ndarray:
    depth = np.zeros(len(parents), np.int64)
    above = parents.copy()
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parents[above], -1)
    return depth


def _under_way(segment: np.ndarray, segments: int) -> np.ndarray:
    moving: np.ndarray = (segment >= 0) & (segment < segments)
    return moving


def _moves(op: Op, src: np.ndarray, dst: np.ndarray, chunk: np.ndarray, channel: int) -> list[Block]:
    # Both directions of an edge are different pairs, so one channel serves both.
    return [explicit(op, src, dst, chunk, channel=channel)] if len(src) else []
