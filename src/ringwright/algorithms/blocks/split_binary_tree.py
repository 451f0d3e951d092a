"""Split binary tree.

Idea: one half of the message goes down the left subtree of a binary tree and the other down the right one; afterwards every
    rank swaps halves with its partner on the other side. Each subtree carries half the bytes.
Cost: about 2 (d + S - 1) turns of (alpha + n/2S beta) over d = floor(lg p) levels, and alpha + n/2 beta for the swap.
Knobs: segment_bytes=0 (each half whole).
Holds: left ranks are odd and right ranks even, counted from the root, so partners are neighbours; where p is even the last
    rank has no partner and the root hands it the other half.
Figure: none; a building block.
Source: open-mpi/ompi, coll/tuned algorithm 4 of bcast.
Declines: everything but broadcast; fewer than three ranks have no two subtrees and are sent the message straight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.blocks.linear import linear
from ringwright.algorithms.offers import require_op, segments_of
from ringwright.algorithms.trees import level_tree, spans_of
from ringwright.ground.knobs import SegmentBytes
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("broadcast",)


def split_binary_tree(
    collective: Collective, topology: Topology | None = None, *, segment_bytes: SegmentBytes = 0
) -> Program:
    """Return the broadcast in two halves down the two sides of a binary tree."""
    require_op("split_binary_tree", collective, OPS)
    if collective.p < 3:
        return linear(collective, topology)
    segments = segments_of(collective, segment_bytes, 2)
    step, parent, child, segment = level_tree(collective.p, 2).schedule(segments)
    rounds = int(step[-1]) + 1
    p, n = collective.p, float(collective.size_bytes)
    layout = cut(collective, 2 * segments)
    turn = float(layout.chunk_bytes.max(initial=0))
    halves = [float(layout.chunk_bytes[:segments].sum()), float(layout.chunk_bytes[segments:].sum())]

    def steps() -> Iterator[Step]:
        chunk = segment + segments * (child % 2 == 0)  # the left side is odd and takes the first half
        for here in spans_of(step):
            src, dst = ((side[here] + collective.root) % p for side in (parent, child))
            yield Step((explicit(Op.SEND, src, dst, chunk[here]),), "down")
        yield _swap(collective, segments)

    return Program(
        "split_binary_tree",
        collective,
        layout,
        steps,
        rounds + 1,
        Cost(
            (Term(rounds, rounds * turn), Term(1, max(halves))),
            n * (p - 1),
            is_even=collective.size_bytes % (2 * segments * collective.unit_bytes) == 0,
        ),
        knobs={"segments": segments},
    )


def _swap(collective: Collective, segments: int) -> Step:
    """Return the step in which ranks 2i+1 and 2i+2 swap halves; a left rank without a partner gets the other from the root."""
    p = collective.p
    left, right = np.arange(1, p, 2), np.arange(2, p, 2)
    giver = np.concatenate((right, np.zeros(len(left) - len(right), np.int64)))
    src, dst = np.concatenate((left[: len(right)], giver)), np.concatenate((right, left))
    chunk = np.where(dst % 2 == 0, 0, segments)
    src, dst = (src + collective.root) % p, (dst + collective.root) % p
    return Step((explicit(Op.SEND, src, dst, chunk, span=segments),), "swap")
