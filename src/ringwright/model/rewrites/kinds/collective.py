"""Collective: do the sums by another collective."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from msgspec import Struct

from ringwright.model.rewrites.operation import Operation


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """``op``: the collective, as it is spelled everywhere."""

    op: str


NEEDS = (("op",),)
CARRIED_BY = ("live",)
WHOLE = True


def rewritten(operations: Iterable[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield each operation with its collective replaced; operations that are no sum stay as they are."""
    for each in operations:
        yield replace(each, op=settings.op) if each.op in ("all-reduce", "push-pull") else each
