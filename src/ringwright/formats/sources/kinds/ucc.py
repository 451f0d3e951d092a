"""Tables of UCC's own benchmark."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import by_words

WHAT = "table of UCC's own benchmark"
RANK = 123
READER = "ringwright.formats.sources.tables.ucc:read_ucc"
WITHIN = ("nccl-log", "bench", "osu", "imb", "perftest")  # whose files may hold such a table as well
_TITLE = re.compile(rb"Collective: +\w+ *\r?\n[^\n]{0,120}Memory type:|\bCount +Size +Time, us")
looks_like, lies_in = by_words(_TITLE)
