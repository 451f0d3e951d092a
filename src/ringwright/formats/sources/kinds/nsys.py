"""Nsight Systems exports are SQLite databases."""

from __future__ import annotations

from ringwright.formats.sources.kinds import MAGIC, NO

WHAT = "Nsight Systems export"
RANK = 10
SUREST = MAGIC
READER = "ringwright.formats.sources.nsys:read_nsys"
SQLITE = b"SQLite format 3\x00"


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return MAGIC if head.startswith(SQLITE) else NO
