"""Groups: fuse exactly what is listed together; the rest stays alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites.operation import Operation, merged


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """``names``: the payloads of each operation."""

    names: tuple[tuple[str, ...], ...]


NEEDS = (("names",),)
CARRIED_BY = ("live", "hook", "buckets")
WHOLE = True


def rewritten(operations: Sequence[Operation], settings: Settings) -> Iterator[Operation]:
    """Yield the operations listed, then those left alone; UsageError for a payload that is none, or in two groups."""
    by_name = {payload.name: each for each in operations for payload in each.payloads}
    taken: set[str] = set()
    for names in settings.names:
        strange = [name for name in names if name not in by_name or name in taken]
        if strange:
            raise UsageError(f"'{strange[0]}' is no payload, or in two groups", remedy="each payload in one group")
        taken |= set(names)
        yield merged([by_name[name] for name in names])
    yield from (each for each in operations if each.name not in taken)


def names(settings: Settings) -> Iterator[str]:
    """Yield the payloads that the settings name."""
    for group in settings.names:
        yield from group
