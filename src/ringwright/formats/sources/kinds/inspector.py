"""NCCL Inspector's records name performance and sequence of each operation."""

from __future__ import annotations

from ringwright.formats.sources.kinds import KEYS, NO, has, of_others

WHAT = "NCCL Inspector records"
RANK = 70
READER = "ringwright.formats.sources.nccl_inspector:read_inspector"
PARSER = "ringwright.formats.sources.nccl_inspector.file:read_file"
GROWING = "ringwright.formats.sources.nccl_inspector.growing:GrowingInspector"


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    text = of_others(head)
    return KEYS if has(text, "coll_perf") or has(text, "coll_sn") or has(text, "p2p_perf") else NO
