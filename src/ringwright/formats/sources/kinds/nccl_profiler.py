"""The file of our NCCL profiler plug-in has a magic word."""

from __future__ import annotations

from ringwright.formats.sources.kinds import MAGIC, NO

WHAT = "file of the NCCL profiler plug-in"
RANK = 20
SUREST = MAGIC
READER = "ringwright.formats.sources.nccl_profiler:read_nccl_profiler"
PARSER = "ringwright.formats.sources.nccl_profiler.file:read_file"
GROWING = "ringwright.formats.sources.nccl_profiler.growing:GrowingProfiler"
WORD = b"RWNCCLPROF"


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return MAGIC if head.startswith(WORD) else NO
