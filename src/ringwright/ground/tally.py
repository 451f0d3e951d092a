"""Work that is counted as it is done, the same on every machine, for whoever asks how much something was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_tally: ContextVar[list[int] | None] = ContextVar("tally", default=None)


@contextmanager
def tallied() -> Iterator[list[int]]:
    """Give the work of each part of the block that counts its own, as it comes."""
    parts: list[int] = []
    token = _tally.set(parts)
    try:
        yield parts
    finally:
        _tally.reset(token)


def count(work: int) -> None:
    """Count work: about as much as so many instances of a job are to the engine."""
    if (parts := _tally.get()) is not None:
        parts.append(work)
