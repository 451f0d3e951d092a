"""Fuse: append gradients to the open bucket until it has reached its cap, in ready order (DistributedDataParallel)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from ringwright.model.rewrites.operation import Operation
from ringwright.model.rewrites.pools import bucketed


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """``caps_bytes``: of the first, second ... bucket, the last for all others."""

    caps_bytes: Annotated[tuple[float, ...], Meta(min_length=1)]


NEEDS = (("caps_bytes",),)
CARRIED_BY = ("live", "hook", "buckets")
WHOLE = True


def rewritten(operations: Sequence[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield the buckets; gradients of different roles, classes or collectives never share one."""
    caps = [int(cap) for cap in settings.caps_bytes]
    yield from bucketed(operations, lambda at: caps[min(at, len(caps) - 1)])
