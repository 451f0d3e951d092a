"""Tables of the OSU micro-benchmarks."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import by_words

WHAT = "table of the OSU micro-benchmarks"
RANK = 121
READER = "ringwright.formats.sources.tables.osu:read_osu"
WITHIN = ("nccl-log", "bench", "imb", "ucc", "perftest")  # whose files may hold such a table as well
_TITLE = re.compile(
    rb"#[ \t]*OSU[ \t]+[A-Z][^\n]{0,100} [Tt]est\b|^#[ \t]*Size[ \t]+(?:Avg[ \t]+)?(?:Latency|Bandwidth|Overall)[ \t]?\(",
    re.MULTILINE,
)
looks_like, lies_in = by_words(_TITLE)
