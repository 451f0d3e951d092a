"""Tables of the Intel MPI Benchmarks."""

from __future__ import annotations

import re
from functools import lru_cache

from ringwright.formats.sources.kinds import NO, WORDS, document

WHAT = "table of the Intel MPI Benchmarks"
RANK = 122
READER = "ringwright.formats.sources.tables.imb:read_imb"
WITHIN = ("nccl-log", "bench", "osu", "ucc", "perftest")  # whose files may hold such a table as well
_TITLE = re.compile(
    rb"#[ \t]*Benchmarking[ \t]+[A-Z][\w-]+\s|^[ \t]*#(?:bytes[ \t]+#)?repetitions[ \t].{0,80}t(?:_\w+)?\[usec\]",
    re.MULTILINE,
)


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return WORDS if not document(head) and lies_in(head) else NO


@lru_cache(maxsize=2)
def lies_in(head: bytes) -> bool:
    """Whether there is a table among other lines."""
    return bool(_TITLE.search(head))
