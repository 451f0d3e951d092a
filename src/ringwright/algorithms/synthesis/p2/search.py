"""All sequences of instructions up to a length that do a collective, with the cheapest of them.

What can follow a state in so many instructions is worked out once, whatever led there. Of two instructions that make the same
groups of devices that hold something only one is followed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ringwright.algorithms.synthesis.p2.language import Hierarchy, Instruction, State

Sequenced = tuple[Instruction, ...]
Price = Callable[[Instruction, State, State], float]  # of an instruction, from what is held before and after


@dataclass
class Sequences:
    """The sequences of a collective over a hierarchy: how many there are, all of them, the cheapest of them."""

    hierarchy: Hierarchy
    op: str
    most: int
    successors: dict[State, tuple[tuple[Instruction, State], ...]] = field(default_factory=dict, repr=False)
    counts: dict[tuple[State, int], int] = field(default_factory=dict, repr=False)

    def follow(self, state: State) -> tuple[tuple[Instruction, State], ...]:
        """Return the instructions that may be done in a state, each with what it leaves; the plainer of two alike."""
        if state not in self.successors:
            known: dict[tuple[str, int, int], tuple[Instruction, State]] = {}
            for each in self.hierarchy.candidates(state):
                after = self.hierarchy.after(each, state)
                if after is not None:
                    known.setdefault((each.collective, each.span, self.hierarchy.active(each, state)), (each, after))
            self.successors[state] = tuple(known.values())
        return self.successors[state]

    def count(self, state: State | None = None, left: int | None = None) -> int:
        """Return how many sequences there are."""
        state, left = self._asked(state, left)
        if self.hierarchy.is_done(self.op, state):
            return 1
        if self.hierarchy.least_left(self.op, state) > left or not left:
            return 0
        if (state, left) not in self.counts:
            self.counts[state, left] = sum(self.count(after, left - 1) for _, after in self.follow(state))
        return self.counts[state, left]

    def every(self, state: State | None = None, left: int | None = None) -> Iterator[Sequenced]:
        """Yield all of them."""
        state, left = self._asked(state, left)
        if self.hierarchy.is_done(self.op, state):
            yield ()
            return
        for each, after in self.follow(state) if self.count(state, left) else ():
            if self.count(after, left - 1):
                yield from ((each, *rest) for rest in self.every(after, left - 1))

    def cheapest(self, price: Price, keep: int) -> list[tuple[float, Sequenced]]:
        """Return the ``keep`` cheapest, each with its price; of equal ones those that are shorter, then those met first."""
        known: dict[tuple[State, int], list[tuple[float, int, Sequenced]]] = {}

        def best(state: State, left: int) -> list[tuple[float, int, Sequenced]]:
            if self.hierarchy.is_done(self.op, state):
                return [(0.0, 0, ())]
            if not self.count(state, left):
                return []
            if (state, left) not in known:
                known[state, left] = heapq.nsmallest(
                    keep,
                    (
                        (price(each, state, after) + rest_s, length + 1, (each, *rest))
                        for each, after in self.follow(state)
                        for rest_s, length, rest in best(after, left - 1)
                    ),
                    key=lambda priced: priced[:2],
                )
            return known[state, left]

        begin, left = self._asked(None, None)
        return [(seconds, sequence) for seconds, _, sequence in best(begin, left)]

    def _asked(self, state: State | None, left: int | None) -> tuple[State, int]:
        return (self.hierarchy.before(self.op) if state is None else state, self.most if left is None else left)
