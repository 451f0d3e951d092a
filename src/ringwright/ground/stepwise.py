"""Work in known steps, told to whoever watches as it goes; and work that is counted, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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


_tally: ContextVar[list[int] | None] = ContextVar("tally", default=None)


@contextmanager
def tallied(counts: dict[object, int], name: object) -> Iterator[None]:
    """Put the work of a block into ``counts`` by a name, as far as it counts its own."""
    token = _tally.set([])
    try:
        yield
    finally:
        counts[name] = sum(_tally.get() or ())
        _tally.reset(token)


def tally(work: int) -> None:
    """Count work: about as much as so many instances of a job are to the engine."""
    if (parts := _tally.get()) is not None:
        parts.append(work)
