"""Debug logs have NCCL's own lines; any text may be one that says nothing, unless its name tells of something else."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import ANY_TEXT, NO, WORDS, document, of_others

WHAT = "NCCL or RCCL debug log"
RANK = 110
READER = "ringwright.formats.sources.nccl_log.reader:read_log"
GROWING = "ringwright.formats.sources.nccl_log.growing:GrowingLog"
_LINE = re.compile(rb"NCCL (?:INFO|WARN|CALL|TRACE)|NCCL version|Watchdog caught collective|ProcessGroupNCCL")
_OTHERS = (".xml", ".html", ".py", ".md", ".toml", ".csv", ".yml", ".yaml")


def looks_like(head: bytes, name: str) -> int:
    """Return how sure we are."""
    if document(head):
        return WORDS if _LINE.search(of_others(head)) else NO
    if _LINE.search(head):
        return WORDS
    return NO if name.endswith(_OTHERS) or b"\x00" in head else ANY_TEXT
