"""Two levels.

Idea: inside a node the ranks hand their vectors to leaders through memory, the leaders of all nodes talk over the network, and
    then tell their nodes. With L leaders a node each takes 1/L of the vector, so that L cores add up at once (DPML).
Cost: (c-1)/L n in and out of each of the L leaders of a node of c ranks, and the outer algorithm on n/L with L at once.
Knobs: leaders=1; outer=recursive_doubling (all-reduce, barrier) or binomial (broadcast, reduce); segments=1, so that leaders
    of one segment talk while nodes copy the next; hosts (the host of each rank; else the topology's; else one host).
Holds: nodes of any sizes; a rank leads several parts where its node has fewer ranks than leaders; the outer algorithm may add
    up in the network.
Figure: none; a building block.
Source: Bayatpour et al., DPML, SC 2017 (doi 10.1145/3126908.3126954); with one leader ``smp`` of pmodels/mpich.
Declines: blocks that belong to ranks (all-gather, reduce-scatter, all-to-all); outer algorithms that need slots beside the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ringwright.algorithms import placement
from ringwright.algorithms.blocks.binomial import binomial
from ringwright.algorithms.blocks.recursive_doubling import recursive_doubling
from ringwright.algorithms.compose import Algorithm, beside, embed
from ringwright.algorithms.offers import require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range, Segments
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Layout, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.streams import Stream
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "barrier", "broadcast", "reduce")


def two_level(
    collective: Collective,
    topology: Topology | None = None,
    *,
    leaders: Annotated[int, Range(1, 64)] = 1,
    outer: Algorithm | None = None,
    segments: Segments = 1,
    hosts: Sequence[Annotated[int, Range(0, 65535)]] | None = None,
) -> Program:
    """Return the program that adds up (or tells) inside nodes and between the leaders of nodes."""
    require_op("two_level", collective, OPS)
    if leaders < 1 or segments < 1:
        raise UsageError(f"leaders={leaders}, segments={segments}: each must be 1 or more", remedy="leaders=1")
    if collective.p == 1:
        return nothing("two_level", collective, leaders=leaders, segments=segments)
    nodes = placement.members(collective, topology, hosts) or [list(range(collective.p))]
    if collective.reduces and not collective.commutative and not placement.is_consecutive(nodes):
        raise UsageError(
            "two_level: the ranks of a node are not consecutive, so the order of the ranks cannot be kept",
            remedy="linear",
        )
    default: Algorithm = recursive_doubling if collective.op in ("all-reduce", "barrier") else binomial
    return _Levels(collective, topology, nodes, leaders, segments, outer or default).program()


class _Levels:
    """Part j * segments + s is segment s of what leader j takes."""

    def __init__(
        self,
        collective: Collective,
        topology: Topology | None,
        nodes: list[list[int]],
        leaders: int,
        segments: int,
        outer: Algorithm,
    ) -> None:
        self.collective, self.topology, self.nodes = collective, topology, nodes
        self.leaders, self.segments, self.parts = leaders, segments, leaders * segments
        self.home = next(number for number, node in enumerate(nodes) if collective.root in node)
        sizes = cut(collective, self.parts).chunk_bytes
        # Parts differ by one element at most; each has a program of its own size, so that bytes are exact.
        self.programs = [self._between(outer, part, int(sizes[part % len(sizes)])) for part in range(self.parts)]
        self.outer = self.programs[0]
        if self.outer.layout.before is not None:
            raise UsageError(
                f"two_level: {self.outer.name} needs slots of its own beside the data, which leaders do not have"
            )
        self.width = self.outer.layout.n_chunks
        self.scratch = self.outer.layout.slots - self.width
        if any(program.layout.n_chunks != self.width for program in self.programs):
            raise UsageError(f"two_level: {self.outer.name} cuts the leaders' parts differently", remedy="leaders=1")
        self.aggregators = tuple(dict.fromkeys(node for program in self.programs for node in program.aggregators))

    def _between(self, outer: Algorithm, part: int, size_bytes: int) -> Program:
        whole = self.collective
        heads = [whole.group[self.leader(node, part // self.segments)] for node in self.nodes]
        small = Collective(
            whole.op, heads, size_bytes, whole.dtype, whole.reduce_op, self.home, commutative=whole.commutative
        )
        return outer(small, self.topology)

    def leader(self, node: list[int], number: int) -> int:
        """Return the rank of a node that leads part ``number``: the root, in its own node."""
        first = node.index(self.collective.root) if self.collective.root in node and self.rooted else 0
        return node[(first + number) % len(node)] if not self.rooted else node[first]

    @property
    def rooted(self) -> bool:
        """Whether the home node must be led by the root alone."""
        return self.collective.op in ("broadcast", "reduce")

    def program(self) -> Program:
        collective, n = self.collective, float(self.collective.size_bytes)
        up, down = collective.reduces, collective.op != "reduce"
        passes = (up + down) * any(len(node) > 1 for node in self.nodes)
        most = max(-(-self.leaders // (1 if self.rooted else len(node))) * (len(node) - 1) for node in self.nodes)
        busy = max(-(-self.leaders // (1 if self.rooted else len(node))) for node in self.nodes)
        terms = [Term(passes * self.segments, passes * most * n / self.leaders, "level0")] if passes else []
        terms += [
            dataclasses.replace(
                term,
                messages=term.messages * self.segments,
                size_bytes=term.size_bytes * self.segments * busy,
                level="level1",
            )
            for term in self.outer.cost.terms
        ]
        inside = n * sum(len(node) - 1 for node in self.nodes) * (up + down)
        between = sum(program.cost.sent_bytes for program in self.programs)
        reduced = (most * n / self.leaders if up else 0.0) + self.outer.cost.reduced_bytes * self.segments * busy
        even = collective.size_bytes % (self.parts * collective.unit_bytes) == 0 and self.outer.cost.is_even
        return Program(
            "two_level",
            collective,
            self._layout(),
            self.steps,
            self.segments * (passes + self.outer.n_steps),
            Cost(tuple(terms), inside + between, reduced, is_even=even),
            self.aggregators,
            self._streams(),
            knobs={"leaders": self.leaders, "segments": self.segments, "outer": self.outer.name},
        )

    def _streams(self) -> tuple[Stream, ...]:
        """Return one stream a switch: all parts use it at the same time, and share what there is."""
        every = [stream for program in self.programs for stream in program.streams]
        return tuple(dataclasses.replace(at, channels=()) for at in {each.node: each for each in every}.values())

    def _layout(self) -> Layout:
        """Return the parts' chunks, and behind them the scratch slots of each part."""
        plain = cut(self.collective, self.parts * self.width)
        if not self.scratch:
            return plain
        inner = self.outer.layout.template
        like = np.arange(self.width, self.width + self.scratch) % self.width if inner is None else inner[self.width :]
        of_parts = (np.arange(self.parts)[:, None] * self.width + like).reshape(-1)
        template = np.concatenate((np.arange(plain.n_chunks), of_parts))
        return dataclasses.replace(plain, n_slots=len(template), template=template)

    def steps(self) -> Iterator[Step]:
        for segment in range(self.segments):
            parts = range(segment, self.parts, self.segments)
            if self.collective.reduces:
                yield from self._inside(Op.REDUCE, parts)
            yield from beside(*[self._among(part) for part in parts])
            if self.collective.op != "reduce":
                yield from self._inside(Op.SEND, parts)

    def _inside(self, op: Op, parts: range) -> Iterator[Step]:
        """Yield the step in which ranks hand their parts to the leaders (REDUCE), or leaders to the ranks (SEND)."""
        inner, leader, first = [], [], []
        for part in parts:
            for node in self.nodes:
                head = self.leader(node, part // self.segments)
                start = node.index(head)
                others = [*reversed(node[:start]), *node[start + 1 :]]  # outwards, so that neighbours are added up
                inner += others
                leader += [head] * len(others)
                first += [part * self.width] * len(others)
        if inner:
            ends = (inner, leader) if op is Op.REDUCE else (leader, inner)
            yield Step((explicit(op, *ends, first, span=self.width),), "in" if op is Op.REDUCE else "out")

    def _among(self, part: int) -> Iterator[Step]:
        program = self.programs[part]
        heads = [self.leader(node, part // self.segments) for node in self.nodes]
        heads += [self.collective.p + self.aggregators.index(node) for node in program.aggregators]
        own = self.parts * self.width + part * self.scratch
        slots = [*range(part * self.width, (part + 1) * self.width), *range(own, own + self.scratch)]
        yield from embed(program.steps(), heads, slots, "between")
