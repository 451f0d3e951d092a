"""Tables of perftest, the benchmark of RDMA links."""

from __future__ import annotations

import re
from functools import lru_cache

from ringwright.formats.sources.kinds import NO, WORDS, document

WHAT = "table of perftest"
RANK = 124
READER = "ringwright.formats.sources.tables.perftest:read_perftest"
WITHIN = ("nccl-log", "bench", "osu", "imb", "ucc")  # whose files may hold such a table as well
_TITLE = re.compile(
    rb"#bytes[ \t]+#iterations[ \t]+(?:BW|t_)|^[ \t]*(?:RDMA_?\w*|Send|Atomic \w+)[ \w]{0,40}? (?:BW|Latency) Test\s*$",
    re.MULTILINE,
)


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return WORDS if not document(head) and lies_in(head) else NO


@lru_cache(maxsize=2)
def lies_in(head: bytes) -> bool:
    """Whether there is a table among other lines."""
    return bool(_TITLE.search(head))
