"""Width: send each number in fewer bytes, or more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct

from ringwright.model.rewrites.operation import Operation


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """``element_bytes`` of a number on the wire (2: half precision)."""

    element_bytes: Annotated[int, Meta(ge=1)]


NEEDS = (("element_bytes",),)
CARRIED_BY = ("live",)
WHOLE = False


def rewritten(operations: Iterable[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield each operation at its new size."""
    for each in operations:
        elements = sum(payload.elements for payload in each.payloads)
        yield replace(each, size_bytes=elements * settings.element_bytes) if elements else each
