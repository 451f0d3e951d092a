"""What trees of adding nodes do turn by turn: members contribute, nodes combine, the last ones give the sum out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.innetwork.middlebox_trees import DIRECT, MiddleboxTree
from ringwright.algorithms.offers import is_even
from ringwright.model.collective import split
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit
from ringwright.model.streams import Stream

if TYPE_CHECKING:
    from ringwright.model.collective import Collective


@dataclass(frozen=True)
class TreeTurn:
    """Moves in turn ``at`` of each segment; ``aside``: how many sets of places its target, or source, is behind the data."""

    at: int
    op: Op
    src: np.ndarray
    dst: np.ndarray
    aside: np.ndarray | int = 0


@dataclass(frozen=True)
class TreeTurns:
    """The program of trees of adding nodes, which are program nodes p, p+1, ...; each tree has a channel up and one back.

    ``shares`` are the bytes that each tree carries (none: the same for all), ``multicast``: nodes copy results in one stream.
    """

    collective: Collective
    trees: tuple[MiddleboxTree, ...]
    segments: int
    shares: tuple[int, ...] | None = None
    multicast: bool = False

    def program(self, name: str, **knobs: object) -> Program:
        """Return the program, in which a segment of a tree's share takes a step for each turn."""
        collective, trees = self.collective, self.trees
        nodes = tuple(dict.fromkeys(node for tree in trees for node in tree.nodes))
        number = {node: collective.p + index for index, node in enumerate(nodes)}
        turns = [self._turns(tree, np.array([number[node] for node in tree.nodes], np.int64)) for tree in trees]
        sets = 1 + max(int(np.max(turn.aside, initial=0)) for mine in turns for turn in mine)
        parts = len(trees) * self.segments
        layout = cut(collective, parts, copies=sets, shares=self._sizes())
        last = max(turn.at for mine in turns for turn in mine)
        moves = [sum(int((turn.src != turn.dst).sum()) for turn in mine) for mine in turns]
        streams = tuple(
            Stream(node, channels=(2 * at, 2 * at + 1)) for at, tree in enumerate(trees) for node in tree.nodes
        )
        size, height = float(collective.size_bytes), max(tree.height for tree in trees)
        weights = self.shares or (size / len(trees),) * len(trees)
        sent = float(sum(each * weight for each, weight in zip(moves, weights, strict=True)))
        messages = 2 + height * (1 if collective.op == "reduce" else 2) if nodes else 1
        busiest = max((count for tree in trees for count in tree.fan_in), default=1)
        return Program(
            name,
            collective,
            layout,
            lambda: self._steps(turns, last),
            self.segments + last,
            Cost(
                (Term(messages, size * messages),),
                sent,
                size * busiest,
                is_even=self.shares is None and is_even(collective, parts),
            ),
            aggregators=nodes,
            streams=streams,
            knobs={"trees": len(trees), "nodes": len(nodes), "segments": self.segments, **knobs},
        )

    def _sizes(self) -> np.ndarray | None:
        """Return the bytes of each chunk, int64 of shape (trees * segments,); None where all trees carry the same."""
        if self.shares is None:
            return None
        unit = self.collective.unit_bytes
        return np.concatenate([split(share, self.segments, unit) for share in self.shares])

    def _turns(self, tree: MiddleboxTree, at: np.ndarray) -> list[TreeTurn]:
        """Return what a segment does: to the first boxes, from box to box, and out of the last ones."""
        p, root = self.collective.p, self.collective.root
        is_rooted = self.collective.op == "reduce"
        members = np.array([rank for rank in range(p) if not is_rooted or rank != root], np.int64)
        first, parents = np.array(tree.first_of), np.array(tree.parents, np.int64)
        heights, boxed = np.array(tree.heights), first != DIRECT
        turns = [TreeTurn(0, Op.CONTRIBUTE, members[boxed], at[first[boxed]])] if boxed.any() else []
        for level in range(tree.height):
            rising = np.flatnonzero((heights == level) & (parents != DIRECT))
            turns.append(TreeTurn(1 + level, Op.COMBINE, at[rising], at[parents[rising]]))
        out = 1 + tree.height
        if not is_rooted and not tree.nodes:
            return self._by_the_root(members[members != root])
        if not is_rooted:
            return [*turns, *self._spread(tree, at, out)]
        if not boxed.all():
            alone = members[~boxed]
            turns.append(TreeTurn(0, Op.REDUCE, alone, np.full(len(alone), root)))
        tops = np.flatnonzero(parents == DIRECT)
        if len(tops):
            here, sets = np.full(len(tops), root), 1 + np.arange(len(tops))
            turns += [TreeTurn(out, Op.EMIT, at[tops], here, sets), TreeTurn(out + 1, Op.REDUCE, here, here, sets)]
        return turns

    def _by_the_root(self, others: np.ndarray) -> list[TreeTurn]:
        """Return the turns of an all-reduce without nodes: the root adds, and sends each other one the sum."""
        root = np.full(len(others), self.collective.root)
        return [TreeTurn(0, Op.REDUCE, others, root), TreeTurn(1, Op.SEND, root, others)]

    def _spread(self, tree: MiddleboxTree, at: np.ndarray, out: int) -> Iterator[TreeTurn]:
        """Yield the turns in which results go down, from turn ``out`` on: a box gives them to boxes and members below at once."""
        first, parents, depths = np.array(tree.first_of), np.array(tree.parents), np.array(tree.depths)
        for depth in range(max(tree.depths) + 1):
            lower = np.flatnonzero((parents != DIRECT) & (depths == depth + 1))
            members = np.flatnonzero(depths[first] == depth)
            src = np.concatenate((at[parents[lower]], at[first[members]]))
            yield TreeTurn(out + depth, Op.EMIT, src, np.concatenate((at[lower], members)))

    def _steps(self, turns: list[list[TreeTurn]], last: int) -> Iterator[Step]:
        every, behind = self.segments, len(self.trees) * self.segments
        for step in range(every + last):
            blocks = []
            for tree, mine in enumerate(turns):
                for turn in mine:
                    segment = step - turn.at
                    if not 0 <= segment < every:
                        continue
                    chunk = tree * every + segment
                    aside = chunk + np.asarray(turn.aside) * behind
                    here, there = (chunk, aside) if turn.op is Op.EMIT else (aside, chunk)
                    channel = 2 * tree + (turn.op in (Op.EMIT, Op.SEND))
                    made = explicit(turn.op, turn.src, turn.dst, here, there, channel=channel)
                    copied = self.multicast and turn.op is Op.EMIT
                    blocks.append(replace(made, multicast=True) if copied else made)
            yield Step(tuple(blocks), "segments")
