"""How a program cuts data as NCCL does: loops and slices of rings, segments of trees, parts of messages.

A program as long as all of NCCL's chunks would be too long for large sizes on many ranks; there loops are taken together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.nccl_2_4.rings import LoopCounts
from ringwright.costs.nccl import NcclChoice, NcclSystem, cut
from ringwright.costs.nccl.timing import P2P_PIECE_BYTES, SLICE_LEAST_BYTES

if TYPE_CHECKING:
    from ringwright.model.collective import Collective

MOST_MOVES = 100_000  # of a program
MOST_SEGMENTS = 32  # through switches
MOST_PARTS = 16  # of a message of an all-to-all


def loop_counts(collective: Collective, chosen: NcclChoice, system: NcclSystem) -> LoopCounts:
    """Return a ring's loops and slices: Simple's chunks go in halves, unless those are short."""
    chunks = cut(chosen, system)
    moves = (collective.p - 1) * collective.p * chosen.channels_used * (2 if collective.op == "all-reduce" else 1)
    chunk = min(chunks.chunk_bytes, collective.size_bytes / (chosen.channels_used * collective.p))
    halves = chunks.slice_bytes < chunks.chunk_bytes and chunk > SLICE_LEAST_BYTES
    slices = 2 if halves and 2 * moves <= MOST_MOVES else 1
    return LoopCounts(max(1, min(chunks.loops, MOST_MOVES // (moves * slices))), slices)


def segments(collective: Collective, chosen: NcclChoice, system: NcclSystem, trees: int) -> int:
    """Return the chunks that follow each other through a tree."""
    chunks = -(-collective.size_bytes // (trees * cut(chosen, system).chunk_bytes))
    return max(1, min(chunks, MOST_MOVES // (2 * collective.p * trees)))


def parts(collective: Collective) -> int:
    """Return the parts of an all-to-all's messages."""
    largest, moves = int(collective.block_bytes.max(initial=0)), collective.p * (collective.p - 1)
    return max(1, min(-(-largest // P2P_PIECE_BYTES), MOST_PARTS, MOST_MOVES // moves))
