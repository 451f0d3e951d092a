"""The table of ``key_averages().table()`` of PyTorch's profiler."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import NO, WORDS, document

WHAT = "PyTorch profiler's table of averages"
RANK = 127
READER = "ringwright.formats.sources.key_averages:read_key_averages"
_HEADER = re.compile(rb"\bName +Self CPU %.{0,600}# of Calls")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return WORDS if not document(head) and _HEADER.search(head) else NO
