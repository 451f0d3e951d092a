"""Select: send a share of the chunks, chosen alike on all ranks by norms that are exchanged first (GradientFlow)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct

from ringwright.model.rewrites.operation import Operation


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """``share`` of the chunks of ``chunk_elements`` numbers that travels."""

    share: Annotated[float, Meta(ge=0, le=1)]
    chunk_elements: Annotated[int, Meta(ge=1)]


NEEDS = (("share", "chunk_elements"),)
CARRIED_BY = ()
WHOLE = False


def rewritten(operations: Iterable[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield each operation with fewer bytes; a norm is 4 B a chunk."""
    for each in operations:
        elements = sum(payload.elements for payload in each.payloads)
        norms = 4 * -(-elements // settings.chunk_elements) if settings.share < 1 else 0
        yield replace(each, size_bytes=round(each.size_bytes * settings.share) + norms)
