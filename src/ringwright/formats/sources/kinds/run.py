"""Run manifests carry our own schema."""

from __future__ import annotations

from ringwright.formats.sources.kinds import is_ours

WHAT = "what was recorded, and how the job ended"
RANK = 41
READER = "ringwright.formats.sources.run_manifest:read_run_manifest"


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return is_ours(head, "run")
