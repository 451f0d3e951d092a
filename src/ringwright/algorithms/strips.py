"""A vector in strips that follow one another through the levels of a mesh, or lie beside one another on several paths.

Nothing but the data orders the strips, so that one is in the slow network while the next is still in the fast one. That
needs a first level that is done with one strip before it starts the next, such as a direct exchange: a ring would turn
all strips round together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from ringwright.algorithms.compose import Algorithm, beside, shift
from ringwright.algorithms.levels import Levels
from ringwright.model.collective import Collective, split
from ringwright.model.program import Cost, Program, Step, Term, cut


class Strips:
    """``strips[path][piece]`` bytes each; every strip is a small all-reduce over the levels."""

    def __init__(
        self, name: str, collective: Collective, strips: list[np.ndarray], sizes: list[int], chosen: list[Algorithm]
    ) -> None:
        self.name, self.collective, self.strips = name, collective, strips
        self.slowest = f"level{len(sizes) - 1}"
        different = {int(size) for path in strips for size in path}
        self.small = {
            size: Levels(Collective("all-reduce", range(collective.p), size, collective.dtype), sizes, chosen).program(
                "strip"
            )
            for size in sorted(different)
        }

    @property
    def total(self) -> int:
        """Chunks of a strip."""
        return next(iter(self.small.values())).layout.n_chunks

    def program(self) -> Program:
        """Return the program; strips follow one another, and overlap as their data allow."""
        each = [self.small[int(size)] for path in self.strips for size in path]
        unit = self.collective.unit_bytes
        shares = np.concatenate([split(program.collective.size_bytes, self.total, unit) for program in each])
        # The last level carries all pieces; of the levels before it, only the first and the last piece are not hidden.
        first = [self.small[int(path[0])] for path in self.strips]
        terms = tuple(
            dataclasses.replace(
                term,
                messages=term.messages * (len(self.strips[0]) if term.level == self.slowest else 1),
                size_bytes=sum(one.cost.terms[i].size_bytes for one in self._unhidden(term, first, each)),
            )
            for i, term in enumerate(first[0].cost.terms)
        )
        hides = len(self.strips[0]) > 1 and self.slowest != "level0"
        return Program(
            self.name,
            self.collective,
            cut(self.collective, len(shares), shares=shares),
            self.steps,
            each[0].n_steps * len(self.strips[0]),
            Cost(
                terms,
                sum(program.cost.sent_bytes for program in each),
                sum(program.cost.reduced_bytes for program in each),
                is_even=all(one.cost.is_even for one in each),
                hides=hides,
            ),
            channels=len(self.strips),
        )

    def steps(self) -> Iterator[Step]:
        """Yield piece after piece, the paths side by side."""
        count = len(self.strips[0])
        for piece in range(count):
            yield from beside(
                *(
                    shift(self.small[int(path[piece])].steps(), (number * count + piece) * self.total, number)
                    for number, path in enumerate(self.strips)
                )
            )

    def _unhidden(self, term: Term, first: list[Program], each: list[Program]) -> list[Program]:
        """Return the strips whose bytes are on the critical path at the level of a term."""
        return each if term.level == self.slowest else first
