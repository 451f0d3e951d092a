"""Benchmark tables: what nccl-tests, superbench and PyTorch's examples print, their JSON, and CSV of bytes and times."""

from __future__ import annotations

import re
from functools import lru_cache

from ringwright.formats.sources.kinds import FIRST_LINE, KEYS, NO, WORDS, document, has, of_others

WHAT = "benchmark table"
RANK = 120
READER = "ringwright.formats.sources.bench:read_bench"
WITHIN = ("nccl-log", "osu", "imb", "ucc", "perftest")  # whose files may hold a table as well
BARE_ROW = (  # of nccl-tests, up to the first time
    r"[ \t]*\d+ +\d+ +(?:float|half|double|bfloat16|u?int(?:8|32|64)|fp8\w*) +(?:sum|prod|max|min|avg|mulsum|none) +-?\d+ +[\d.]+"
)
_TABLE = re.compile(
    rb"nThread \d+ nGpus|^#\s+size\s+count\s+type|algbw(?:\(GB/s\))?\s+busbw|out-of-place"
    rb"|^" + BARE_ROW.encode() + rb" +[\d.]+ ",
    re.MULTILINE,
)
_TORCH = re.compile(rb"algo throughput: [\d.]+ bps|bandwidth of all_reduce (?:over|with)")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    if document(head):
        return KEYS if _is_report(of_others(head)) else NO
    if lies_in(head):
        return WORDS
    first = head.split(b"\n", 1)[0].lower()
    return FIRST_LINE if first.count(b",") >= 2 and b"bytes" in first and b"time" in first else NO


@lru_cache(maxsize=2)
def lies_in(head: bytes) -> bool:
    """Whether there is a table among other lines."""
    return bool(_TABLE.search(head) or _TORCH.search(head))


def _is_report(text: bytes) -> bool:
    is_superbench = b'"nccl-bw' in text or b'"rccl-bw' in text
    is_run = has(text, "ranks", "size", "time") or has(text, "config", "out_of_place")
    return is_run or has(text, "busbw") or has(text, "busBw") or is_superbench
