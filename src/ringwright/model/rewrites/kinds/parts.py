"""Parts: cut large keys evenly over parameter servers, as MXNet does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct

from ringwright.model.rewrites.operation import Operation


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """What holds more than ``above_elements`` numbers is cut into ``servers`` equal parts."""

    servers: Annotated[int, Meta(ge=1)]
    above_elements: Annotated[float, Meta(ge=0)]


NEEDS = (("servers", "above_elements"),)
CARRIED_BY = ("live",)
WHOLE = True


def rewritten(operations: Iterable[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield each operation, the large ones with a piece for each server."""
    for each in operations:
        elements = sum(payload.elements for payload in each.payloads)
        large = elements > settings.above_elements
        yield replace(each, piece_bytes=-(-each.size_bytes // settings.servers)) if large else each
