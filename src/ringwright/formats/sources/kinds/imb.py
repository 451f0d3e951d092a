"""Tables of the Intel MPI Benchmarks."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import by_words

WHAT = "table of the Intel MPI Benchmarks"
RANK = 122
READER = "ringwright.formats.sources.tables.imb:read_imb"
WITHIN = ("nccl-log", "bench", "osu", "ucc", "perftest")  # whose files may hold such a table as well
_TITLE = re.compile(
    rb"#[ \t]*Benchmarking[ \t]+[A-Z][\w-]+\s|^[ \t]*#(?:bytes[ \t]+#)?repetitions[ \t].{0,80}t(?:_\w+)?\[usec\]",
    re.MULTILINE,
)
looks_like, lies_in = by_words(_TITLE)
