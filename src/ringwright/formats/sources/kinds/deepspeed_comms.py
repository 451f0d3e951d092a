"""DeepSpeed's communication logger: its lines, its tables, and the dictionary of ``log_summary``."""

from __future__ import annotations

import re
from functools import lru_cache

from ringwright.formats.sources.kinds import KEYS, NO, WORDS, document, has, of_others

WHAT = "DeepSpeed communication log"
RANK = 116
READER = "ringwright.formats.sources.deepspeed_comms:read_deepspeed_comms"
WITHIN = ("nccl-log", "megatron-log")  # a job's log holds other lines as well
_LINES = re.compile(rb"comm op: [A-Za-z_][^\n]{0,330}\| time \(ms\): |Comm\. Op {2,}Message Size {2,}Count {2,}Total ")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    # a log's first line may begin with [ as a list does
    if document(head).startswith(b"{"):
        return KEYS if has(of_others(head), "total_latency_ms", "tput_avg_gbps", "msg_size_bytes") else NO
    return WORDS if lies_in(head) else NO


@lru_cache(maxsize=2)
def lies_in(head: bytes) -> bool:
    """Whether there are such lines among others."""
    return bool(_LINES.search(head))
