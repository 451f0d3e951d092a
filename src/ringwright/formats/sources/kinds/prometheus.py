"""Prometheus text: comments of help and type, and samples with labels."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import NO, WORDS, document

WHAT = "Prometheus text of a profiler"
RANK = 130
SUREST = WORDS
READER = "ringwright.formats.sources.prometheus:read_prometheus"
_SAMPLE = re.compile(rb"^# (?:HELP|TYPE) \w+|^[a-zA-Z_:][\w:]*\{[^}\n]*\} [-+0-9.eEinfNa]+\s*(?:\d+)?$", re.MULTILINE)


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return WORDS if not document(head) and _SAMPLE.search(head) else NO
