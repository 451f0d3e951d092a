"""Tables of expected performance: PICO's maps of ranks and summaries, and CSV with latencies or means."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import FIRST_LINE, KEYS, NO, document

WHAT = "table of expected performance"
RANK = 30
READER = "ringwright.formats.sources.tables.perf_table:read_perf_table"
_PICO = re.compile(rb"\s*\{\d+ : [^\s{}]+ - \d+\}|highest\s+\d|[^\n]*\bcollective_type\b[^\n]*,[^\n]*\bmedian\b")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    if _PICO.match(head):
        return KEYS
    if document(head):
        return NO
    first = head.split(b"\n", 1)[0].lower()
    is_named = b"latency" in first or b"message_size" in first or b"mean" in first
    is_of_kernels = b"kernel_type" in first  # Holistic Trace Analysis, whose means are of kernels
    return FIRST_LINE if first.count(b",") >= 3 and is_named and not is_of_kernels else NO
