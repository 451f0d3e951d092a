"""What ``nsys stats`` prints of kernels, as columns or CSV."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import by_words

WHAT = "kernels as nsys stats prints them"
RANK = 126
READER = "ringwright.formats.sources.nsys.printed:read_nsys_text"
_HEADER = re.compile(
    rb"\bStart \(\w+\)[ \",]+Duration \(\w+\)[ \",]+CorrId|\bTime ?\(%\)[ \",]+Total Time \(\w+\)[ \",]+Instances"
)
looks_like, _ = by_words(_HEADER)
