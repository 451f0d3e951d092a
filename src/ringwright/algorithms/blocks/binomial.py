"""Binomial tree.

Idea: in each round every rank that has the message sends it to one other, the farthest first, so that twice as many have
    it. A gather or scatter sends the blocks of a whole subtree at once.
Cost: broadcast and reduce ceil(lg p) (alpha + n beta); gather and scatter ceil(lg p) alpha + (p-1)/p n beta.
Knobs: segment_bytes=0 (the message whole; broadcast, reduce, all-reduce only).
Holds: subtrees are ranges of ranks, counted from the root; a reduction meets the ranks in order.
Figure: none; a building block.
Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005; open-mpi/ompi coll/tuned, algorithm 6 of bcast, 5 of reduce.
Declines: all-gather, reduce-scatter, all-to-all (they are symmetric; a tree would load its root).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms import trees
from ringwright.algorithms.offers import is_even, require_op, segments_of
from ringwright.ground.knobs import SegmentBytes
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = (*trees.TREE_OPS, "gather", "scatter")


def binomial(collective: Collective, topology: Topology | None = None, *, segment_bytes: SegmentBytes = 0) -> Program:
    """Return broadcast, reduce, all-reduce, barrier, gather or scatter over a binomial tree."""
    del topology
    require_op("binomial", collective, OPS)
    if collective.op in ("gather", "scatter"):
        return _blocks_program(collective)
    segments = segments_of(collective, segment_bytes)
    tree = trees.knomial(collective.p, 2)
    return trees.tree_program("binomial", collective, tree, segments)


# --------------------------------------------------------------------------------------------------- gather and scatter
def _blocks_program(collective: Collective) -> Program:
    p = collective.p
    if p == 1:
        return nothing("binomial", collective)
    rounds = math.ceil(math.log2(p))
    share = collective.size_bytes / p
    # Where the last subtree is smaller, it sends earlier than this: the cost is that of equal subtrees.
    alike = is_even(collective, 1) and (collective.op == "scatter" or p & (p - 1) == 0)
    return Program(
        "binomial",
        collective,
        cut(collective),
        lambda: _hand_overs(collective, rounds),
        rounds,
        Cost((Term(rounds, share * (p - 1)),), _carried(collective), is_even=alike),
    )


def _carried(collective: Collective) -> float:
    """Return all bytes sent: each block is sent once for each bit that is set in its rank's number, counted from the root."""
    p, blocks = collective.p, collective.block_bytes
    return float(sum(int(blocks[(node + collective.root) % p]) * node.bit_count() for node in range(p)))


def _hand_overs(collective: Collective, rounds: int) -> Iterator[Step]:
    scatters = collective.op == "scatter"
    order = reversed(range(rounds)) if scatters else range(rounds)
    for level in order:
        upper, lower, block = _subtrees(collective.p, 1 << level)
        upper, lower, block = ((nodes + collective.root) % collective.p for nodes in (upper, lower, block))
        ends = (upper, lower) if scatters else (lower, upper)
        yield Step((explicit(Op.SEND, *ends, block),), collective.op)


def _subtrees(p: int, reach: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parent, child and block of what nodes ``reach`` apart, counted from the root, send each other."""
    block = np.arange(p)
    block = block[block & reach > 0]
    child = block & -reach
    return child - reach, child, block
