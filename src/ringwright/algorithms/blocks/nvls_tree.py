"""NVLS-Tree: reduction inside each switch domain, a double binary tree between them, multicast back.

Idea: each rank of a domain, or the first ``heads`` of them, heads an equal part of the data: it reads the domain's sum of its
    part through the switch, the heads of the same part in all domains all-reduce it over two trees, and each head stores the
    result through the switch.
Cost: 2 alpha_nvlink + (S + 2h - 1) alpha_net, and n (h+1)/h beta inside, 2 n/h beta between the domains, of h heads.
Knobs: heads (a domain's ranks; NCCL takes 32 at the most); segments per tree (8 at the most).
Holds: a NIC carries its head's share only; the trees are those of double-binary-tree.
Figure: none; the algorithm NCCL takes on several nodes with NVSwitch.
Source: NCCL 2.18 and later, src/device/all_reduce.h.
Declines: all but all-reduce; fabrics without an aggregating switch per host; domains of unequal size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.blocks.nvls import elements_of, switch_domains
from ringwright.algorithms.compose import beside, embed, later
from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.algorithms.pipelined_tree import PipelinedTree
from ringwright.costs.nccl.trees import double_tree
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Channels, Segments
from ringwright.model.collective import Collective
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, explicit, nothing
from ringwright.model.streams import Stream

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
FABRICS = ("dgx-h100:1", "dgx-h100:2", "dgx-h100:4")
MOST_SEGMENTS = 8
SEGMENT_BYTES = 128 << 10
WINDOW = 8  # segments in a switch at once: a rank gives the next when an earlier one has left
RESULTS = 2  # channel of results: a message must not wait for contributions that follow


def nvls_tree(
    collective: Collective,
    topology: Topology | None = None,
    *,
    heads: Channels | None = None,
    segments: Segments | None = None,
) -> Program:
    """Return the program of an all-reduce over several switch domains."""
    require_op("nvls-tree", collective, OPS)
    require_commutative("nvls-tree", collective)
    if collective.p == 1:
        return nothing("nvls-tree", collective)
    domains = switch_domains(collective, topology)
    members = [places for _, places in domains]
    leading = min(heads or len(members[0]), len(members[0]))
    if len({len(places) for places in members}) > 1:
        raise UsageError(
            "nvls-tree needs equally many ranks in every switch domain", remedy="--algorithm double-binary-tree"
        )
    trees = [PipelinedTree(tree.parents) for tree in double_tree(len(members))] if len(members) > 1 else []
    share = collective.size_bytes / leading / max(len(trees), 1)
    most = elements_of(collective, leading * max(len(trees), 1))
    pieces = min(segments or max(1, min(MOST_SEGMENTS, int(share // SEGMENT_BYTES))), most)
    return _Plan(collective, [switch for switch, _ in domains], members, leading, trees, pieces).program()


class _Plan:
    """Chunk = (head, tree, segment); switches are nodes p, p+1, ..., their second set of slots holds results."""

    def __init__(
        self,
        collective: Collective,
        switches: list[int],
        members: list[list[int]],
        heads: int,
        trees: list[PipelinedTree],
        pieces: int,
    ) -> None:
        self.collective, self.switches, self.members = collective, switches, members
        self.heads, self.trees, self.pieces = heads, trees, pieces
        self.per_head = pieces * max(len(trees), 1)
        self.chunks = self.heads * self.per_head

    def program(self) -> Program:
        """Return the program of the plan."""
        size, heads, domains = float(self.collective.size_bytes), self.heads, len(self.members)
        ranks = len(self.members[0])
        between = 2 * self.top + self.pieces - 1 if self.trees else 0
        path = (Term(2, size * (heads + 1) / heads, "nvlink"), Term(between, 2 * size / heads, "nic"))
        sent = size * (2 * ranks + 2) * domains + 2 * (domains - 1) * size
        return Program(
            "nvls-tree",
            self.collective,
            cut(self.collective, self.chunks, copies=2),
            self._steps,
            self.pieces + 3 + 2 * self.top,
            Cost(path, sent, size / heads, is_even=is_even(self.collective, self.chunks)),
            aggregators=tuple(self.switches),
            streams=tuple(map(Stream, self.switches)),
            knobs={"segments": self.pieces} | ({"heads": heads} if heads < ranks else {}),
        )

    @property
    def top(self) -> int:
        """Height of the trees between the domains."""
        return max((tree.top for tree in self.trees), default=0)

    def _steps(self) -> Iterator[Step]:
        """Segment s enters the switches in step s, the trees in step s + 2, and is spread when both trees have it."""
        trees = [
            later(
                embed(
                    tree.steps(self.pieces, channel=i),
                    [places[head] for places in self.members],
                    np.arange(self.pieces) + head * self.per_head + i * self.pieces,
                ),
                2,
            )
            for head in range(self.heads)
            for i, tree in enumerate(self.trees)
        ]
        back = 2 + 2 * self.top
        yield from beside(
            self._stream(self._all, Op.CONTRIBUTE, "reduce"),
            later(self._stream(self._heads, Op.EMIT, "reduce"), 1),
            *trees,
            later(self._stream(self._heads, Op.CONTRIBUTE, "multicast"), back),
            later(self._stream(self._all, Op.EMIT, "multicast"), back + 1),
        )

    def _stream(self, moves: Callable[[Op, int, np.ndarray], Block], op: Op, label: str) -> Iterator[Step]:
        """Yield a step per segment: the same moves in every domain, for that segment's chunks of all heads and trees."""
        pipelines = np.arange(self.heads * max(len(self.trees), 1)) * self.pieces
        for segment in range(self.pieces):
            yield Step(tuple(moves(op, domain, pipelines + segment) for domain in range(len(self.members))), label)

    def _held(self, chunk: np.ndarray) -> np.ndarray:
        """Return the slot of a switch in which the members' chunks meet."""
        segment = chunk % self.pieces
        slot: np.ndarray = chunk - segment + segment % WINDOW
        return slot

    def _all(self, op: Op, domain: int, chunk: np.ndarray) -> Block:
        """Every member with the switch: contributions, or copies of the results."""
        node = self.collective.p + domain
        members, chunks = (grid.reshape(-1) for grid in np.meshgrid(self.members[domain], chunk, indexing="ij"))
        if op is Op.CONTRIBUTE:
            return explicit(op, members, node, chunks, self._held(chunks))
        block = explicit(op, node, members, chunks + self.chunks, chunks)
        return Block(op, block.shape, block.src, block.dst, block.chunk, block.to, channel=RESULTS, multicast=True)

    def _heads(self, op: Op, domain: int, chunk: np.ndarray) -> Block:
        """Every head with the switch, its own chunks."""
        node, head = self.collective.p + domain, np.array(self.members[domain])[chunk // self.per_head]
        return (
            explicit(op, node, head, self._held(chunk), chunk)
            if op is Op.EMIT
            else explicit(op, head, node, chunk, chunk + self.chunks, channel=RESULTS)
        )
