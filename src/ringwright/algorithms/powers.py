"""Ranks as digits: radix**k ranks act, the others hand their data to one of them; partners differ in one digit.

With p ranks and the largest radix**k not above p, ranks fall into radix**k contiguous groups, the larger groups first; the
last of each group acts for it. For radix 2 these are the pairs of the first 2(p - 2**k) ranks and all others alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ringwright.model.program import Affine, Block, Op, Step, explicit


@dataclass(frozen=True)
class RankDigits:
    """``p`` ranks as ``radix**digits`` acting ones."""

    p: int
    radix: int = 2

    @cached_property
    def digits(self) -> int:
        """Digits of an acting rank's number."""
        digits = 0
        while self.radix ** (digits + 1) <= self.p:
            digits += 1
        return digits

    @property
    def size(self) -> int:
        """Acting ranks."""
        return int(self.radix**self.digits)

    @property
    def is_whole(self) -> bool:
        """Whether every rank acts."""
        return self.size == self.p

    @cached_property
    def starts(self) -> np.ndarray:
        """First rank of each group, and p behind the last: int64 of length size + 1."""
        usual, more = divmod(self.p, self.size)
        lengths = np.full(self.size, usual, np.int64)
        lengths[:more] += 1
        return np.concatenate(([0], np.cumsum(lengths)))

    @property
    def deepest(self) -> int:
        """Ranks of the largest group that do not act."""
        return -(-self.p // self.size) - 1

    # ------------------------------------------------------------------------------------------------- acting ranks
    def number(
        self, turns: Mapping[int, int] | None = None, weights: Sequence[int] | None = None, base: int = 0
    ) -> Affine:
        """Return, for every acting rank, the sum over its digits of ((digit + turns) mod radix) times the digit's weight.

        Without weights it is the number of the acting rank itself, or of the partner that ``turns`` leads to.
        """
        weights = [self.radix**digit for digit in range(self.digits)] if weights is None else weights
        order = reversed(range(self.digits))  # the last axis runs fastest: it is digit 0
        return Affine(tuple((1, (turns or {}).get(digit, 0), self.radix, weights[digit]) for digit in order), base)

    @property
    def shape(self) -> tuple[int, ...]:
        """The range of the acting ranks, one axis a digit."""
        return (self.radix,) * self.digits

    def block(self, op: Op, dst: Affine, chunk: Affine, span: int = 1) -> Block:
        """Return one move per acting rank to the acting rank of number ``dst``."""
        if self.is_whole:
            return Block(op, self.shape, self.number(), dst, chunk, span=span)
        acting = self.starts[1:] - 1
        slots = chunk.values(self.shape)
        return explicit(op, acting, acting[dst.values(self.shape)], slots, span=span)

    def ranges(self, op: Op, dst: Affine, position: Affine, span: int, edges: np.ndarray) -> tuple[Block, ...]:
        """Return the moves of ``span`` positions from ``position`` on, where position q has slots edges[q] to edges[q+1]."""
        widths = np.diff(edges)
        if self.is_whole and (widths == widths[0]).all():
            width = int(widths[0])
            return (self.block(op, dst, position.scaled(width), span * width),)
        acting, first = self.starts[1:] - 1, position.values(self.shape)
        begin, length = edges[first], edges[first + span] - edges[first]
        there = acting[dst.values(self.shape)]
        blocks = []
        for width in np.unique(length[length > 0]):
            chosen = length == width
            blocks.append(explicit(op, acting[chosen], there[chosen], begin[chosen], span=int(width)))
        return tuple(blocks)

    # ------------------------------------------------------------------------------------------------- all others
    def others(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ranks that do not act, and the rank that acts for each; those nearest to it first.

        Both int64 of shape (idle ranks,).
        """
        acting = np.repeat(self.starts[1:] - 1, np.diff(self.starts))
        rank = np.arange(self.p)
        away = acting - rank
        order = np.argsort(away, kind="stable")
        order = order[away[order] > 0]
        return rank[order], acting[order]

    def enter(self, span: int, chunk: int = 0) -> Iterator[Step]:
        """Yield the step in which the other ranks send ``span`` slots to the rank that acts for them, which adds them up."""
        ranks, acting = self.others()
        if len(ranks):
            yield Step((explicit(Op.REDUCE, ranks, acting, chunk, span=span),), "fold")

    def leave(self, span: int, chunk: int = 0) -> Iterator[Step]:
        """Yield the step in which the acting ranks hand the result back."""
        ranks, acting = self.others()
        if len(ranks):
            yield Step((explicit(Op.SEND, acting, ranks, chunk, span=span),), "unfold")


def halvings(fold: RankDigits, digits: Sequence[int]) -> Iterator[tuple[int, list[int], int]]:
    """Yield (digit, weights of the positions, span) as the range of each acting rank halves, digit after digit."""
    weights = [0] * fold.digits
    span = fold.size
    for digit in digits:
        span //= fold.radix
        weights[digit] = span
        yield digit, list(weights), span


def halving(
    fold: RankDigits, digits: Sequence[int], edges: np.ndarray, label: str = "reduce-scatter"
) -> Iterator[Step]:
    """Yield the reduce-scatter of positions: each rank gives its partners their shares of what it still has."""
    for digit, weights, span in halvings(fold, digits):
        blocks: list[Block] = []
        for by in range(1, fold.radix):
            partner = fold.number({digit: by})
            blocks += fold.ranges(Op.REDUCE, partner, fold.number({digit: by}, weights), span, edges)
        yield Step(tuple(blocks), label)


def doubling(fold: RankDigits, digits: Sequence[int], edges: np.ndarray, label: str = "all-gather") -> Iterator[Step]:
    """Yield the all-gather of positions that undoes ``halving`` over the same digits."""
    for digit, weights, span in reversed(list(halvings(fold, digits))):
        position = fold.number(None, weights)
        blocks: list[Block] = []
        for by in range(1, fold.radix):
            blocks += fold.ranges(Op.SEND, fold.number({digit: by}), position, span, edges)
        yield Step(tuple(blocks), label)
