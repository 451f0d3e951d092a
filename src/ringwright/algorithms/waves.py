"""Segments that follow each other in waves, through ranks and aggregating switches: the shared part of CollNet's algorithms.

The data is cut into *pipelines*, each into segments. A wave is what every segment of a pipeline does in its n-th turn;
segment s does it in step s + n, or later where switches have few places. Ranks have a place for every segment, switches a
window of them that is used again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import is_even
from ringwright.ground.errors import UsageError
from ringwright.model.program import Affine, Block, Cost, Op, Program, Step, Term, constant, cut
from ringwright.model.streams import Stream, leased_bytes

if TYPE_CHECKING:
    from ringwright.algorithms.switch_trees import SwitchTree
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

PLAIN = Stream(-1)  # of a node to be named: a share of its memory, numbers as they are, links that lose nothing
SPARE = 2  # further places in a switch, so that the latency of the route is hidden


@dataclass(frozen=True)
class Wave:
    """Moves of a pipeline in its turn ``at``; ``back``: of results, which take a channel of their own.

    ``second``: in switches that are passed twice, the places of the second time.
    """

    at: int
    op: Op
    src: np.ndarray
    dst: np.ndarray
    back: bool = False
    second: bool = False


@dataclass(frozen=True)
class Waves:
    """All pipelines of an all-reduce over ``aggregators`` (topology nodes; p, p+1, ... in waves).

    Each pipeline is a tree with a stream of its own in every switch of ``topology``, all ``lease`` but node and channels;
    switches ``inside`` nodes have one plain stream for all. ``spare``: places beyond one for each turn.
    """

    collective: Collective
    pipelines: list[list[Wave]]
    aggregators: tuple[int, ...]
    segments: int
    topology: Topology | None
    lease: Stream = PLAIN
    inside: tuple[int, ...] = ()
    spare: int = SPARE

    @cached_property
    def span(self) -> int:
        """Turns from the first contribution of a segment to its last result."""
        spans = []
        for pipeline in self.pipelines:
            given, taken = ([wave.at for wave in pipeline if wave.op is op] for op in (Op.CONTRIBUTE, Op.EMIT))
            spans.append(max(taken) - min(given))
        return max(spans)

    @cached_property
    def window(self) -> int:
        """Segments of a pipeline in a switch at once: one for each turn from contribution to result, and spare ones."""
        return min(self.span + 1 + self.spare, self.segments, self.lease.slots or self.segments)

    @property
    def period(self) -> int:
        """Steps after which a place takes its next segment: where places are few, as its last result leaves."""
        return max(self.window, self.span)

    @property
    def steps(self) -> int:
        """Steps until the last segment has done its last turn."""
        turn, place = divmod(self.segments - 1, self.window)
        return turn * self.period + place + self.turns

    def _segment(self, step: int) -> int:
        """Return the segment that begins in a step, -1 for none."""
        turn, place = divmod(step, self.period)
        segment = turn * self.window + place
        return segment if step >= 0 and place < self.window and segment < self.segments else -1

    @cached_property
    def turns(self) -> int:
        """Turns of a segment."""
        return 1 + max(wave.at for pipeline in self.pipelines for wave in pipeline)

    @cached_property
    def sets(self) -> int:
        """Sets of places: two where a switch is passed twice."""
        return 1 + any(wave.second for pipeline in self.pipelines for wave in pipeline)

    def program(self, name: str, terms: Sequence[Term], reduced: float, **knobs: object) -> Program:
        """Return the program, which sends a pipeline's bytes once in each move; UsageError where slots do not fit."""
        pipelines, moves = len(self.pipelines), sum(len(wave.src) for pipeline in self.pipelines for wave in pipeline)
        size = float(self.collective.size_bytes)
        layout = cut(self.collective, pipelines * self.segments, copies=self.sets)
        streams = tuple(self._streams())
        self._require_room(name, streams)
        even = is_even(self.collective, pipelines * self.segments)
        return Program(
            name,
            self.collective,
            layout,
            self._steps,
            self.steps,
            Cost(tuple(terms), size * moves / pipelines, reduced, is_even=even),
            aggregators=self.aggregators,
            streams=streams,
            knobs={**knobs, "segments": self.segments},
        )

    def _streams(self) -> Iterator[Stream]:
        for index, node in enumerate(self.aggregators, self.collective.p):
            if node in self.inside:
                yield Stream(node)
                continue
            for number, pipeline in enumerate(self.pipelines):
                if any((wave.src == index).any() or (wave.dst == index).any() for wave in pipeline):
                    yield replace(self.lease, node=node, channels=(2 * number, 2 * number + 1))

    def _require_room(self, name: str, streams: Sequence[Stream]) -> None:
        slots = self.lease.slots
        if self.topology is None or not slots:
            return
        for node, can in self.topology.aggregators.items():
            here = [stream for stream in streams if stream.node == node and stream.slots]
            needed = sum(leased_bytes(stream, can) for stream in here)
            if needed > can.memory_bytes:
                raise UsageError(
                    f"{name}: memory: {slots:,} slots for each of {len(here)} trees take {needed:,} B of"
                    f" {self.topology.label(node)}, which has {can.memory_bytes:,} B",
                    remedy=f"slots={can.memory_bytes // (needed // slots)} or fewer",
                )

    def _steps(self) -> Iterator[Step]:
        waves = [
            (number, wave, self._switches(wave.src), self._switches(wave.dst))
            for number, pipeline in enumerate(self.pipelines)
            for wave in pipeline
        ]
        for step in range(self.steps):
            moving = [(segment, *each) for each in waves if (segment := self._segment(step - each[1].at)) >= 0]
            yield Step(tuple(self._block(*each) for each in moving), "segments")

    def _switches(self, nodes: np.ndarray) -> np.ndarray | bool:
        """Return which of some nodes are switches: one answer, where it is the same for all."""
        switches: np.ndarray = nodes >= self.collective.p
        return bool(switches[0]) if (switches == switches[0]).all() else switches

    def _block(
        self, segment: int, pipeline: int, wave: Wave, gives: np.ndarray | bool, takes: np.ndarray | bool
    ) -> Block:
        """Return a wave's moves of one segment; a channel per pipeline and direction keeps what must not wait apart."""
        chunk, to = (self._slots(wave, switches, pipeline, segment) for switches in (gives, takes))
        channel, multicast = 2 * pipeline + wave.back, wave.op is Op.EMIT
        return Block(wave.op, (len(wave.src),), wave.src, wave.dst, chunk, to, channel=channel, multicast=multicast)

    def _slots(self, wave: Wave, switches: np.ndarray | bool, pipeline: int, segment: int) -> Affine | np.ndarray:
        first = pipeline * self.segments
        in_switch = first + segment % self.window + wave.second * len(self.pipelines) * self.segments
        if isinstance(switches, bool):
            return constant(in_switch if switches else first + segment)
        return np.where(switches, in_switch, first + segment)


def through(tree: SwitchTree, heads: Sequence[int], first: int, number: dict[int, int]) -> list[Wave]:
    """Return the waves from heads through the switches and back, from turn ``first`` on; the last is ``first + 1 + 2 top``.

    ``number`` gives the program's node of each switch. A switch gives its sum up when all below have given theirs, and its
    result to the members and switches below in one multicast.
    """
    at, parents = np.array([number[node] for node in tree.switches]), np.array(tree.parents)
    height, depth = np.array(tree.height), np.array(tree.depth)
    members, leaf_of = np.asarray(heads, np.int64), np.array(tree.leaf_of)
    waves = [Wave(first, Op.CONTRIBUTE, members, at[leaf_of])]
    for level in range(tree.top):
        rising = np.flatnonzero((height == level) & (parents >= 0))
        waves.append(Wave(first + 1 + level, Op.COMBINE, at[rising], at[parents[rising]]))
    for level in range(tree.top + 1):
        below = np.flatnonzero((parents >= 0) & (depth == level + 1))
        served = np.flatnonzero(depth[leaf_of] == level)
        src = np.concatenate((at[parents[below]], at[leaf_of[served]]))
        dst = np.concatenate((at[below], members[served]))
        waves.append(Wave(first + 1 + tree.top + level, Op.EMIT, src, dst, back=True))
    return waves


def numbered(collective: Collective, trees: Sequence[SwitchTree]) -> dict[int, int]:
    """Return the program's node of each switch of the trees."""
    nodes = sorted({node for tree in trees for node in tree.switches})
    return {node: collective.p + index for index, node in enumerate(nodes)}
