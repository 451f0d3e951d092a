"""Threshold: cut one pool of finished gradients whenever so many bytes are in it (GradientFlow's lazy all-reduce)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ringwright.model.rewrites.operation import Operation
from ringwright.model.rewrites.pools import bucketed


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """``size_bytes`` of the pool."""

    size_bytes: float


NEEDS = (("size_bytes",),)
CARRIED_BY = ("live", "hook", "buckets")
WHOLE = True


def rewritten(operations: Sequence[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield one operation each time the pool is full, and one for the rest."""
    yield from bucketed(operations, lambda _: int(settings.size_bytes))
