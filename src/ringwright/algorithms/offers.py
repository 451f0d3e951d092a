"""What an algorithm offers and what it refuses, said in one way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.errors import UsageError

if TYPE_CHECKING:
    from ringwright.collective import Collective


def require_op(name: str, collective: Collective, ops: Sequence[str]) -> None:
    """Raise UsageError where ``name`` does not do the collective's operation."""
    if collective.op not in ops:
        raise UsageError(f"{name} does no {collective.op}", remedy=f"one of: {', '.join(ops)}")


def require_commutative(name: str, collective: Collective, remedy: str = "linear, binomial or in_order_binary") -> None:
    """Raise UsageError where the order of the ranks matters and ``name`` does not keep it."""
    if collective.reduces and not collective.commutative:
        raise UsageError(f"{name} does not keep the order of the ranks", remedy=remedy)


def is_even(collective: Collective, parts: int) -> bool:
    """Return whether every block falls into ``parts`` equal chunks of whole elements, and the blocks are equal."""
    blocks = collective.block_bytes
    same = bool((blocks == blocks[0]).all())
    return same and int(blocks[0]) % max(parts * collective.unit_bytes, 1) == 0


def segments_of(collective: Collective, segment_bytes: int, share: int = 1) -> int:
    """Return into how many segments of at most ``segment_bytes`` (0: do not cut) 1/share of the size falls, at least 1."""
    if segment_bytes < 0:
        raise UsageError(f"negative segment: {segment_bytes} B", remedy="0 sends the message whole")
    if segment_bytes == 0:
        return 1
    size = -(-collective.size_bytes // share)
    return max(1, -(-size // max(segment_bytes, collective.unit_bytes)))
