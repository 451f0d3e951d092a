"""Tables of perftest, the benchmark of RDMA links."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import by_words

WHAT = "table of perftest"
RANK = 124
READER = "ringwright.formats.sources.tables.perftest:read_perftest"
WITHIN = ("nccl-log", "bench", "osu", "imb", "ucc")  # whose files may hold such a table as well
_TITLE = re.compile(
    rb"#bytes[ \t]+#iterations[ \t]+(?:BW|t_)|^[ \t]*(?:RDMA_?\w*|Send|Atomic \w+)[ \w]{0,40}? (?:BW|Latency) Test\s*$",
    re.MULTILINE,
)
looks_like, lies_in = by_words(_TITLE)
