"""What ``nsys stats`` prints of kernels, as columns or CSV."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import NO, WORDS, document

WHAT = "kernels as nsys stats prints them"
RANK = 126
READER = "ringwright.formats.sources.nsys.printed:read_nsys_text"
_HEADER = re.compile(
    rb"\bStart \(\w+\)[ \",]+Duration \(\w+\)[ \",]+CorrId|\bTime ?\(%\)[ \",]+Total Time \(\w+\)[ \",]+Instances"
)


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return WORDS if not document(head) and _HEADER.search(head) else NO
