"""A collective over the levels of a mesh, one after the other: the shared part of all hierarchical decompositions.

Reduce-scatter along each level in turn, each on what the level before has left; at the last level an all-reduce; then
all-gather along the levels in reverse. Any algorithm may serve a level.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.compose import Algorithm, Axis, lift
from ringwright.algorithms.rows_in_network import RowsInNetwork, adds_in_network, rows_in_network
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Layout, Program, Step, cut

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "all-gather")


def factorise(p: int, topology: Topology | None, factors: Sequence[int] | None) -> list[int]:
    """Return the factors of p above 1, fastest level first: as given, else the topology's axes, else p alone."""
    if factors is None and topology is not None and topology.axes and math.prod(size for _, size in topology.axes) == p:
        factors = [size for _, size in topology.axes]
    sizes = [p] if factors is None else list(factors)
    if math.prod(sizes) != p or min(sizes) < 1:
        raise UsageError(f"the product of the factors {'x'.join(map(str, sizes))} is not {p}, the number of ranks")
    return [size for size in sizes if size > 1]


class Levels:
    """The phases of a collective over levels of p_0, p_1, ... ranks.

    A rank is x_0 + p_0 (x_1 + p_1 (...)), x_i its number within level i. Data are cut by x_0 first, so that what is left
    after each level is one range. The all-reduce of the last level may be one in the switches of ``topology``.
    """

    def __init__(
        self, collective: Collective, sizes: list[int], chosen: list[Algorithm], topology: Topology | None = None
    ) -> None:
        self.collective, self.sizes = collective, sizes
        self.below = [math.prod(sizes[:i]) for i in range(len(sizes) + 1)]
        last = len(sizes) - 1
        phases = {
            "all-reduce": [*((i, "reduce-scatter") for i in range(last)), (last, "all-reduce")],
            "reduce-scatter": [(i, "reduce-scatter") for i in range(len(sizes))],
            "all-gather": [(last, "all-gather")],
        }[collective.op]
        if collective.op != "reduce-scatter":
            phases += [(i, "all-gather") for i in reversed(range(last))]
        self.network: RowsInNetwork | None = None
        if (last, "all-reduce") in phases and adds_in_network(chosen[last]):
            size = collective.size_bytes // self.below[last]
            self.network = rows_in_network(collective, self.below[last], size, chosen[last], topology)
        self.phases = [(level, self._small(level, op, chosen[level])) for level, op in phases]
        # So many chunks that every level cuts the data between two of them.
        self.total = math.lcm(self.below[-1], *(self.below[i] * each.layout.n_chunks for i, each in self.phases))

    def _small(self, level: int, op: str, algorithm: Algorithm) -> Program:
        if self.network is not None and op == "all-reduce":
            return self.network.rows[0]
        size = self.collective.size_bytes // self.below[level]
        made = algorithm(Collective(op, range(self.sizes[level]), size, self.collective.dtype))
        if made.layout.slots > made.layout.n_chunks or made.layout.before is not None or made.layout.after is not None:
            raise UsageError(
                f"{made.name} needs slots of its own beside the data, so it cannot do one level of several",
                remedy="inner=ring",
            )
        return made

    def program(self, name: str) -> Program:
        """Return the program of all phases."""
        collective, p = self.collective, self.collective.p
        terms = [
            dataclasses.replace(term, level=f"level{level}") for level, each in self.phases for term in each.cost.terms
        ]
        sent = sum(each.cost.sent_bytes * p / self.sizes[level] for level, each in self.phases)
        reduced = sum(each.cost.reduced_bytes for _, each in self.phases)
        even = collective.size_bytes % (self.total * collective.unit_bytes) == 0
        return Program(
            name,
            collective,
            self._layout(),
            self._steps,
            sum(self._steps_of(each) for _, each in self.phases),
            Cost(tuple(terms), sent, reduced, is_even=even and all(each.cost.is_even for _, each in self.phases)),
            channels=max(each.channels for _, each in self.phases),
            aggregators=() if self.network is None else self.network.aggregators,
            streams=() if self.network is None else self.network.streams,
            knobs={"factors": tuple(self.sizes)},
        )

    def _is_network(self, program: Program) -> bool:
        return self.network is not None and program is self.network.rows[0]

    def _steps_of(self, program: Program) -> int:
        return self.network.n_steps if self.network is not None and self._is_network(program) else program.n_steps

    def _layout(self) -> Layout:
        collective = self.collective
        if collective.op == "all-reduce":
            return cut(collective, self.total)
        parts = self.total // collective.p
        plain = cut(collective, parts)
        # Slots are ordered by x_0 first and blocks by rank: which rank owns slot range j is a permutation.
        owner = np.arange(collective.p).reshape(self.sizes[::-1]).transpose().reshape(-1)
        chunk = (owner[:, None] * parts + np.arange(parts)).reshape(-1)
        slot = np.arange(self.total)
        mine = [slot[np.flatnonzero(owner == rank)[0] * parts :][:parts] for rank in range(collective.p)]
        own = tuple((mine[rank], chunk[mine[rank]]) for rank in range(collective.p))
        full = ((slot, chunk),) * collective.p
        before, after = (full, own) if collective.op == "reduce-scatter" else (own, full)
        return dataclasses.replace(plain, template=chunk, before=before, after=after)

    def _steps(self) -> Iterator[Step]:
        for level, each in self.phases:
            axes: list[Axis] = [
                (size, self.below[i], self.total // self.below[i + 1] if i < level else 0)
                for i, size in enumerate(self.sizes)
                if i != level
            ]
            weight = self.total // self.below[level] // each.layout.n_chunks
            if self.network is not None and self._is_network(each):
                yield from self.network.steps([self._first(row) for row in range(self.below[level])], weight)
                continue
            yield from lift(each.steps(), self.below[level], weight, axes)

    def _first(self, row: int) -> int:
        """Return the first chunk of a row of the last level: x_0 cuts the data first."""
        first = 0
        for level, size in enumerate(self.sizes[:-1]):
            row, x = divmod(row, size)
            first += x * (self.total // self.below[level + 1])
        return first
