"""The table of ``key_averages().table()`` of PyTorch's profiler."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import by_words

WHAT = "PyTorch profiler's table of averages"
RANK = 127
READER = "ringwright.formats.sources.key_averages:read_key_averages"
_HEADER = re.compile(rb"\bName +Self CPU %.{0,600}# of Calls")
looks_like, _ = by_words(_HEADER)
