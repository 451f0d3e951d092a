"""The last level of several done in the network: every row of ranks has a tree of switches of its own, all rows at once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.compose import Algorithm, beside
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Block, Program, Step
from ringwright.model.streams import leased_bytes

if TYPE_CHECKING:
    from ringwright.model.streams import Stream
    from ringwright.model.topology import Topology

NETWORK = "topology.aggregators.network"  # what such a system names among its needs


def adds_in_network(algorithm: Algorithm) -> bool:
    """Say whether an algorithm, or what it wraps, is a system that needs switches that add: its file says so in ``NEEDS``."""
    while isinstance(algorithm, functools.partial):
        algorithm = algorithm.func
    return NETWORK in getattr(inspect.unwrap(algorithm), "__globals__", {}).get("NEEDS", ())


@dataclass(frozen=True)
class RowsInNetwork:
    """Programs of rows: row r has the members ``r + rows * i`` of ``collective``; switches are numbered behind its ranks."""

    collective: Collective
    rows: tuple[Program, ...]
    topology: Topology

    @property
    def aggregators(self) -> tuple[int, ...]:
        """Topology nodes of all rows' switches."""
        return tuple(sorted({node for row in self.rows for node in row.aggregators}))

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams of all rows, each on channels of its own; slots are halved until all fit into every switch."""
        every = tuple(
            replace(stream, channels=tuple(channel + number * self.channels for channel in stream.channels))
            for number, row in enumerate(self.rows)
            for stream in row.streams
        )
        while self._overfull(every) and any(each.slots > 1 for each in every):
            every = tuple(replace(each, slots=-(-each.slots // 2)) for each in every)
        return every

    def _overfull(self, streams: Sequence[Stream]) -> bool:
        """Say whether some switch has less memory than streams lease of it."""
        needed = dict.fromkeys(self.aggregators, 0)
        for each in streams:
            needed[each.node] += leased_bytes(each, self.topology.aggregators[each.node])
        return any(size > self.topology.aggregators[node].memory_bytes for node, size in needed.items())

    @property
    def channels(self) -> int:
        """Channels that one row takes."""
        return 1 + max((channel for row in self.rows for each in row.streams for channel in each.channels), default=0)

    @property
    def n_steps(self) -> int:
        """Steps until the last row is done."""
        return max(row.n_steps for row in self.rows)

    def steps(self, first: Sequence[int], weight: int) -> Iterator[Step]:
        """Yield the steps of all rows side by side; row r's chunk c is the ``weight`` chunks from ``first[r] + c weight`` on."""
        yield from beside(*(self._row(number, start, weight) for number, start in enumerate(first)))

    def _row(self, number: int, first: int, weight: int) -> Iterator[Step]:
        row, rows = self.rows[number], len(self.rows)
        switches = [self.collective.p + self.aggregators.index(node) for node in row.aggregators]
        who = np.array([*(number + rows * index for index in range(row.p)), *switches], np.int64)
        for step in row.steps():
            yield Step(tuple(self._block(each, who, first, weight, number) for each in step.blocks), step.label)

    def _block(self, block: Block, who: np.ndarray, first: int, weight: int, number: int) -> Block:
        src, dst, chunk, to = block.arrays()
        return Block(
            block.op,
            (len(src),),
            who[src],
            who[dst],
            first + chunk * weight,
            first + to * weight,
            block.span * weight,
            block.channel + number * self.channels,
            block.multicast,
        )


def rows_in_network(
    collective: Collective, rows: int, size_bytes: int, algorithm: Algorithm, topology: Topology | None
) -> RowsInNetwork:
    """Return the all-reduces of ``size_bytes`` of so many rows; UsageError where rows differ, or nothing says what adds."""
    name = getattr(algorithm, "__name__", "this algorithm").replace("_", "-")
    if topology is None:
        raise UsageError(f"{name} does one level of several on a known machine alone", remedy="a fabric, and pieces=1")
    made = []
    for row in range(rows):
        group = [collective.group[index] for index in range(row, collective.p, rows)]
        made.append(algorithm(Collective("all-reduce", group, size_bytes, collective.dtype), topology))
    if any(each.layout.slots > each.layout.n_chunks for each in made):
        raise UsageError(
            f"{name} needs slots of its own beside the data, so it cannot do one level of several", remedy="outer=ring"
        )
    if len({each.layout.n_chunks for each in made}) > 1 or not all(each.aggregators for each in made):
        raise UsageError(f"{name} does not do all rows in the network alike", remedy="outer=ring")
    return RowsInNetwork(collective, tuple(made), topology)
