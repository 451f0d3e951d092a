"""What a report reads of the object of schema ``ringwright.library/1``: a row of each size, as a library chooses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LibraryChoice:
    """What a library chooses at a size, its own estimate, and the time that every verb gives; None where nobody says it."""

    size_bytes: int
    algorithm: str | None
    time_us_p05: float | None
    time_us_p50: float | None
    time_us_p95: float | None
    time_us: float | None = None
    protocol: str | None = None
    channels: int | None = None
    predicted_by: str | None = None


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """The choices of a release, by the rules of ``rules_of``, for ranks that lie equally on nodes."""

    library: str
    release: str
    rules_of: str
    collective: str
    ranks: int
    nodes: int
    fabric: str
    rows: list[LibraryChoice]
