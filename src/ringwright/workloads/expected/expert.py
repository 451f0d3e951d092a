"""Expert parallel training and inference: tokens travel to their experts and back by all-to-all, the rest is fully sharded.

Per block with experts: one all-to-all to the experts and one back, each with its reverse in the backward pass. Without a
capacity, ranks first exchange counts (int64, one an expert), and a rank sends to the experts exactly ``tokens x active`` rows,
and gets as many back; how many rows come to its own experts depends on the routing, so for the way back (and forth, backwards)
only the sum over all ranks is known beforehand: ranks x tokens x active rows. With a capacity all of it is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ringwright.ground.errors import UsageError
from ringwright.workloads.expected import sharded
from ringwright.workloads.expected.row import DTYPE_BYTES, ExpectedRow, merged, whole
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parts import Anatomy


def rows(
    card: ModelCard, anatomy: Anatomy, ranks: int, capacity: int, mode: str, batch: int, sequence: int, dtype: str
) -> list[ExpectedRow]:
    """Return what one rank of ``ranks`` issues; all-to-all sizes are those of a rank with its even share of rows."""
    if card.dims["experts"] % ranks:
        raise UsageError(
            f"{ranks} ranks cannot share {card.dims['experts']} experts evenly",
            remedy=f"an ep that divides {card.dims['experts']}",
        )
    blocks = (
        replace(block, layers=tuple(layer for layer in block.layers if not layer.expert)) for block in anatomy.blocks
    )
    expected = sharded.rows(replace(anatomy, blocks=tuple(blocks)), ranks, mode, dtype)
    if mode == "inference":
        travel = [*_travel(card, "prefill", "prefill", batch * sequence, capacity, dtype)]
        travel += _travel(card, "decode", "decode", batch, capacity, dtype)
    else:
        travel = [*_travel(card, "each", "forward", batch * sequence, capacity, dtype)]
        if mode != "head":
            travel += _travel(card, "each", "backward", batch * sequence, capacity, dtype)
    return merged([*expected, *travel])


def _travel(card: ModelCard, when: str, phase: str, tokens: int, capacity: int, dtype: str) -> Iterator[ExpectedRow]:
    """Yield the all-to-alls of one pass."""
    dims = card.dims
    blocks = sum(block.moe for block in card.anatomy().blocks)
    rows = dims["experts"] * capacity if capacity else tokens * dims["active"]
    yield whole(when, phase, "ep", "all-to-all", rows * dims["hidden"] * DTYPE_BYTES[dtype], 2 * blocks)
    if not capacity and phase != "backward":
        yield whole(when, phase, "ep", "all-to-all", 8 * dims["experts"], blocks)
