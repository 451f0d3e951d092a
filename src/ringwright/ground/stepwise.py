"""Work in known steps, told to whoever watches as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Advance = Callable[[int, int, str], None]  # steps done, steps in all (0: not known), name of the one that begins


def track_progress(items: Sequence[Item], advance: Advance | None, name: Callable[[Item], str] = str) -> Iterator[Item]:
    """Yield each item, and before that tell ``advance`` how many are done; once more when all are."""
    for done, item in enumerate(items):
        if advance is not None:
            advance(done, len(items), name(item))
        yield item
    if advance is not None:
        advance(len(items), len(items), "")
