"""RCCL's Recorder writes one call a line between braces, with a header that quotes nothing."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import MAGIC, NO

WHAT = "RCCL Recorder log"
RANK = 18
SUREST = MAGIC
READER = "ringwright.formats.sources.rccl_recorder:read_rccl_recorder"
_BEGINS = re.compile(rb"\{\s{1,8}(?:hostname : [^\n,\"]{1,255}, )?version : \d{1,4},")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return MAGIC if _BEGINS.match(head) else NO
