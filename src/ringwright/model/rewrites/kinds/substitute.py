"""Substitute: send the factors of an outer product to every other rank instead of its sum (Poseidon)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites.operation import Operation


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """``batch`` pairs of sufficient factors for each payload in ``names``."""

    names: tuple[str, ...]
    batch: Annotated[int, Meta(ge=1)]


NEEDS = (("names", "batch"),)
CARRIED_BY = ()
WHOLE = False


def rewritten(operations: Iterable[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield each operation; UsageError for a payload that is no single outer product."""
    wanted = set(settings.names)
    for each in operations:
        payload = each.payloads[0]
        if payload.name not in wanted:
            yield each
            continue
        if payload.factors is None or len(each.payloads) > 1:
            raise UsageError(
                f"{each.name} is no single outer product", remedy="substitute before fuse, linear layers only"
            )
        width = payload.size_bytes // max(payload.elements, 1) or 4
        yield replace(each, op="factors", size_bytes=settings.batch * sum(payload.factors) * width)


def names(settings: Settings) -> Iterator[str]:
    """Yield the payloads that the settings name."""
    yield from settings.names
