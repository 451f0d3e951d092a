"""Partition: cut an operation into pieces, which the queue schedules one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from msgspec import Struct

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites.operation import Operation


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Pieces of at most ``size_bytes``, or of ``elements`` numbers; all ``equal``, or the last one is what is left.

    Only what is an ``op`` is cut, where one is given.
    """

    size_bytes: float | None = None
    elements: float | None = None
    equal: bool = False
    op: str | None = None


NEEDS = (("size_bytes",), ("elements",))
CARRIED_BY = ("live", "hook")
WHOLE = True


def rewritten(operations: Iterable[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield each operation, cut where it is larger than a piece. Equal pieces are equal to 4 bytes."""
    for each in operations:
        if settings.op not in (None, each.op):
            yield each
            continue
        piece = _piece_bytes(each, settings)
        if piece < 1:
            raise UsageError(
                f"{each.name} cannot be cut into pieces of {piece} B", remedy="a partition of at least 4 B"
            )
        if settings.equal:
            piece = min(piece, 4 * -(-each.size_bytes // (4 * -(-each.size_bytes // piece))))
        yield replace(each, piece_bytes=piece) if each.size_bytes > piece else each


def _piece_bytes(operation: Operation, settings: Settings) -> int:
    if settings.elements is None:
        return int(settings.size_bytes or 0)
    elements = sum(payload.elements for payload in operation.payloads)
    return int(settings.elements * (operation.size_bytes / elements if elements else 4))
