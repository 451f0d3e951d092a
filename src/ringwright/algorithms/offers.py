"""What an algorithm offers and what it refuses, said in one way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringwright.ground.errors import DeclinedError, OperationError, UsageError

if TYPE_CHECKING:
    from ringwright.model.collective import Collective

MOST_MESSAGES = 2_000_000


def require_op(name: str, collective: Collective, ops: Sequence[str]) -> None:
    """Raise OperationError where ``name`` does not do the collective's operation."""
    if collective.op not in ops:
        raise OperationError(f"{name} does no {collective.op}", remedy=f"one of: {', '.join(ops)}")


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
    """Return how many segments of at most ``segment_bytes`` (0: no limit) 1/share of the size is cut into; 1 at the least."""
    if segment_bytes < 0:
        raise UsageError(f"a segment of {segment_bytes} B is negative", remedy="0 sends the message whole")
    if segment_bytes == 0:
        return 1
    size = -(-collective.size_bytes // share)
    segments = max(1, -(-size // max(segment_bytes, collective.unit_bytes)))
    require_few("segments", segments, collective)
    return segments


def require_few(what: str, pieces: int, collective: Collective) -> None:
    """Raise DeclinedError where ``pieces`` for each rank make more messages than can be simulated in a minute."""
    messages = 2 * pieces * collective.p
    if messages > MOST_MESSAGES:
        raise DeclinedError(
            f"{pieces:,} {what} on {collective.p:,} ranks make some {messages:,} messages; at most {MOST_MESSAGES:,} are made",
            remedy=f"at most {max(1, MOST_MESSAGES // (2 * collective.p)):,} {what}, or fewer ranks",
        )
