"""Calls files carry our own schema."""

from __future__ import annotations

from ringwright.formats.sources.kinds import is_ours

WHAT = "calls of a recorded job"
RANK = 40
READER = "ringwright.formats.sources.calls:read_calls"
PARSER = "ringwright.formats.sources.calls.build:read_process"
GROWING = "ringwright.formats.sources.calls.growing:GrowingCalls"


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return is_ours(head, "calls")
