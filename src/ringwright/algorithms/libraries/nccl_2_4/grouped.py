"""Operations that NCCL has no kernel for: one group of sends and receives, every pair at once, nearest ranks first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import is_even
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, explicit, turn

if TYPE_CHECKING:
    from ringwright.model.collective import Collective


def grouped(collective: Collective, parts: int = 1) -> Program:
    """Return the program of an all-to-all, gather, scatter or shift by one as direct messages.

    An all-to-all's messages go in ``parts``, those of all pairs by turns, as the channels of NCCL work on all at once.
    """
    p, op = collective.p, collective.op
    blocks = collective.block_bytes
    rounds = 1 if op == "send-recv" else p - 1
    sizes = np.resize(blocks, collective.n_blocks)
    if op == "all-to-all":
        sent = float(sizes.sum() - sizes[:: p + 1].sum())
    elif op == "send-recv":
        sent = float(sizes.sum())
    else:
        sent = float(sizes.sum() - sizes[collective.root])
    path = rounds * float(blocks.max(initial=0))

    def steps() -> Iterator[Step]:
        for part, by in product(range(parts), range(1, rounds + 1)):
            yield Step((_round(collective, by, parts, part),), "grouped")

    # The messages of a gather come from different ranks: their latencies overlap.
    cost = Cost((Term(1 if op == "gather" else rounds * parts, path),), sent, is_even=is_even(collective, parts))
    return Program("grouped", collective, cut(collective, parts), steps, rounds * parts, cost)


def _round(collective: Collective, by: int, parts: int, part: int) -> Block:
    p, root = collective.p, collective.root
    if collective.op == "all-to-all":
        ranks = np.arange(p)
        return explicit(Op.SEND, ranks, (ranks + by) % p, (ranks * p + (ranks + by) % p) * parts + part)
    if collective.op == "send-recv":
        return Block(Op.SEND, (p,), turn(p), turn(p, 1), turn(p))
    other = (root + by) % p
    ends = (other, root) if collective.op == "gather" else (root, other)
    return explicit(Op.SEND, *ends, other)
