"""Double binary tree.

Idea: two binary trees over the same ranks in which (almost) every inner rank of one is a leaf of the other; each carries half
    of the data, up as a reduction and down as a broadcast, in segments. Logarithmic latency with the full bandwidth.
Cost: (S + 2h - 1)(alpha + n/S beta) in S segments, h the height of the trees: every rank sends and receives up to twice n/2
    each way, so a port carries 2 n in all.
Knobs: segments (16 at the most, of 128 KiB at the least); channels=1, pairs of trees side by side.
Holds: each tree moves half of the data over p-1 edges up and p-1 down; nobody sends more than 2n.
Figure: up to 180 times lower latency than rings at 24,576 GPUs (NVIDIA's announcement of NCCL 2.4; unconfirmed).
Source: Sanders, Speck, Traff: Two-tree algorithms, Parallel Computing 35, 2009; NCCL 2.4, src/graph/trees.cc.
Declines: all but all-reduce (the two trees have different roots).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringwright.algorithms.compose import beside
from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.algorithms.pipelined_tree import PipelinedTree
from ringwright.costs.nccl.trees import double_tree
from ringwright.ground.knobs import Channels, Segments
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Program, Step, Term, cut, nothing

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
MOST_SEGMENTS = 16
SEGMENT_BYTES = 128 << 10


def double_binary_tree(
    collective: Collective,
    topology: Topology | None = None,
    *,
    segments: Segments | None = None,
    channels: Channels = 1,
) -> Program:
    """Return the program of an all-reduce over two complementary binary trees."""
    del topology
    require_op("double-binary-tree", collective, OPS)
    require_commutative("double-binary-tree", collective)
    if collective.p == 1:
        return nothing("double-binary-tree", collective)
    trees = [tree.parents for tree in double_tree(collective.p)]
    return over_trees("double-binary-tree", collective, trees * channels, segments)


def over_trees(
    name: str, collective: Collective, parents: Sequence[Sequence[int]], segments: int | None = None
) -> Program:
    """Return the all-reduce that gives every tree an equal share, each on channels of its own; a tree is its parents."""
    trees = [PipelinedTree(tree) for tree in parents]
    share = collective.size_bytes / len(trees)
    pieces = segments or max(1, min(MOST_SEGMENTS, int(share // SEGMENT_BYTES)))
    n_steps = max(tree.n_steps(pieces) for tree in trees)

    def steps() -> Iterator[Step]:
        return beside(*(tree.steps(pieces, i * pieces, channel=i) for i, tree in enumerate(trees)))

    # Of two ranks the trees with one root go one way at a time, those with the other root the other way; more share a port.
    most_alike = max(Counter(list(tree).index(-1) for tree in parents).values())
    path = n_steps * share / pieces * (len(trees) if collective.p > 2 else most_alike)
    sent = 2.0 * (collective.p - 1) * collective.size_bytes
    return Program(
        name,
        collective,
        cut(collective, pieces * len(trees)),
        steps,
        n_steps,
        Cost((Term(n_steps, path),), sent, share * 2, is_even=is_even(collective, pieces * len(trees))),
        channels=len(trees),
        knobs={"segments": pieces},
    )
