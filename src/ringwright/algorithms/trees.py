"""Trees over ranks counted from the root, and how a message in segments goes down or comes up one.

A node hands a segment to its children one after the other, then the next segment; a reduction is the same backwards in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import require_commutative
from ringwright.ground.errors import UsageError
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective

TREE_OPS = ("broadcast", "reduce", "all-reduce", "barrier")


@dataclass(frozen=True)
class Tree:
    """``children[v]`` in the order in which v serves them; ``top`` is the root; ``in_order``: sums keep the rank order."""

    children: Sequence[Sequence[int]]
    top: int = 0
    in_order: bool = False

    def schedule(self, segments: int) -> tuple[np.ndarray, ...]:
        """Return step, parent, child and segment of every hand-over, in the order of the steps (from 0).

        Each is int64 of shape (hand-overs,).
        """
        has: dict[int, Sequence[int]] = {self.top: [0] * segments}
        rows: list[tuple[int, int, int, int]] = []
        front = [self.top]
        while front:
            parent = front.pop()
            now, arrivals = -1, has.pop(parent)
            times: dict[int, list[int]] = {child: [] for child in self.children[parent]}
            for segment in range(segments):
                for child in self.children[parent]:
                    now = max(arrivals[segment], now + 1)
                    rows.append((now, parent, child, segment))
                    times[child].append(now + 1)
            has |= times
            front += times
        table = np.array(sorted(rows), np.int64).reshape(-1, 4)
        return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def chains(p: int, fanout: int) -> Tree:
    """Return ``fanout`` chains of nearly equal length below the root, the longer ones first."""
    children: list[list[int]] = [[] for _ in range(p)]
    usual, more = divmod(p - 1, fanout)
    first = 1
    for number in range(fanout):
        length = usual + (number < more)
        if length:
            children[0].append(first)
        for node in range(first, first + length - 1):
            children[node].append(node + 1)
        first += length
    return Tree(children, in_order=fanout == 1)


def level_tree(p: int, fanout: int) -> Tree:
    """Return the full tree whose levels are filled one after the other; siblings differ by the width of their parent's level."""
    children: list[list[int]] = []
    width, end = 1, 1
    for node in range(p):
        if node == end:
            width *= fanout
            end += width
        children.append([child for child in range(node + width, node + width * (fanout + 1), width) if child < p])
    return Tree(children)


def knomial(p: int, radix: int) -> Tree:
    """Return the tree in which every rank that has the message sends it to radix-1 others per level, the farthest first."""
    children: list[list[int]] = [[] for _ in range(p)]
    top = 1
    while top < p:
        top *= radix
    for node in range(p):
        reach = top // radix if node == 0 else _lowest(node, radix) // radix
        while reach:
            children[node] += [child for times in reversed(range(1, radix)) if (child := node + times * reach) < p]
            reach //= radix
    return Tree(children, in_order=True)


def _lowest(node: int, radix: int) -> int:
    """Return the largest power of the radix that divides ``node``."""
    power = 1
    while node % (power * radix) == 0:
        power *= radix
    return power


def in_order_binary(p: int) -> Tree:
    """Return the binary tree in which each subtree is a range of ranks that ends with its root; the last rank is on top."""
    children: list[list[int]] = [[] for _ in range(p)]
    waiting = [(0, p - 1)]  # ranges whose last rank is their root
    while waiting:
        low, root = waiting.pop()
        if low == root:
            continue
        middle = low + (root - low) // 2  # the left half is low..middle-1
        halves = [(low, middle - 1), (middle, root - 1)] if middle > low else [(low, root - 1)]
        children[root] = [
            high for _, high in halves
        ]  # a reduction runs backwards: there the right half, the rank's neighbour, comes first
        waiting += halves
    return Tree(children, top=p - 1, in_order=True)


# --------------------------------------------------------------------------------------------------------- the program
def tree_program(name: str, collective: Collective, tree: Tree, segments: int = 1, **knobs: object) -> Program:
    """Return broadcast or reduce over a tree, or an all-reduce (barrier) that goes up one and down the same."""
    knobs["segments"] = segments
    if collective.p == 1:
        return nothing(name, collective, **knobs)
    if not tree.in_order:
        require_commutative(name, collective)
    return _Passage(name, collective, tree, segments).program(knobs)


@dataclass(frozen=True)
class _Passage:
    name: str
    collective: Collective
    tree: Tree
    segments: int

    @cached_property
    def moves(self) -> tuple[np.ndarray, ...]:
        return self.tree.schedule(self.segments)

    @property
    def up(self) -> bool:
        return self.collective.reduces

    @property
    def down(self) -> bool:
        return self.collective.op != "reduce"

    @property
    def base(self) -> int:
        """The rank that plays node 0: the root is on top, unless the ranks must stay in order."""
        if self.collective.reduces and not self.collective.commutative:
            return 0
        return self.collective.root - self.tree.top

    @property
    def carried(self) -> bool:
        """Whether the sum has to go on from the top to the root."""
        top = (self.tree.top + self.base) % self.collective.p
        return self.collective.op == "reduce" and top != self.collective.root

    def program(self, knobs: dict[str, object]) -> Program:
        collective, layout = self.collective, cut(self.collective, self.segments)
        rounds = int(self.moves[0][-1]) + 1
        largest = float(layout.chunk_bytes.max(initial=0))
        passes = self.up + self.down
        terms = [Term(rounds * passes, rounds * passes * largest)]
        sent = float(collective.size_bytes) * (collective.p - 1) * passes
        if self.carried:
            terms.append(Term(1, float(collective.size_bytes)))
            sent += collective.size_bytes
        even = collective.size_bytes % (self.segments * collective.unit_bytes) == 0
        return Program(
            self.name,
            collective,
            layout,
            self.steps,
            rounds * passes + self.carried,
            Cost(tuple(terms), sent, rounds * largest if self.up else 0.0, is_even=even),
            knobs=knobs,
        )

    def steps(self) -> Iterator[Step]:
        step, parent, child, segment = self.moves
        p = self.collective.p
        parent, child = (parent + self.base) % p, (child + self.base) % p
        spans = spans_of(step)
        if self.up:
            for span in reversed(spans):
                yield Step((explicit(Op.REDUCE, child[span], parent[span], segment[span]),), "up")
        if self.carried:
            top = (self.tree.top + self.base) % p
            yield Step((explicit(Op.SEND, top, self.collective.root, 0, span=self.segments),), "carry")
        if self.down:
            for span in spans:
                yield Step((explicit(Op.SEND, parent[span], child[span], segment[span]),), "down")


def spans_of(step: np.ndarray) -> list[slice]:
    """Return which rows of a schedule belong to each of its steps."""
    bounds = np.searchsorted(step, np.arange(int(step[-1]) + 2))
    return [slice(low, high) for low, high in pairwise(bounds.tolist())]


def require_radix(name: str, radix: int, least: int) -> None:
    """Raise UsageError where a fan-out or radix is too small to make a tree."""
    if radix < least:
        raise UsageError(f"{name} with {radix}", remedy=f"take {least} or more")
