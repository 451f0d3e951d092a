"""Tables of the OSU micro-benchmarks."""

from __future__ import annotations

import re
from functools import lru_cache

from ringwright.formats.sources.kinds import NO, WORDS, document

WHAT = "table of the OSU micro-benchmarks"
RANK = 121
READER = "ringwright.formats.sources.tables.osu:read_osu"
WITHIN = ("nccl-log", "bench", "imb", "ucc", "perftest")  # whose files may hold such a table as well
_TITLE = re.compile(
    rb"#[ \t]*OSU[ \t]+[A-Z][^\n]{0,100} [Tt]est\b|^#[ \t]*Size[ \t]+(?:Avg[ \t]+)?(?:Latency|Bandwidth|Overall)[ \t]?\(",
    re.MULTILINE,
)


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return WORDS if not document(head) and lies_in(head) else NO


@lru_cache(maxsize=2)
def lies_in(head: bytes) -> bool:
    """Whether there is a table among other lines."""
    return bool(_TITLE.search(head))
