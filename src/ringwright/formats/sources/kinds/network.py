"""Network counters carry our own schema."""

from __future__ import annotations

from ringwright.formats.sources.kinds import is_ours

WHAT = "network counters of a host"
RANK = 42
READER = "ringwright.formats.sources.network_counters:read_network_counters"


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return is_ours(head, "network")
