"""Logs of Megatron-LM, torchtitan and DeepSpeed's wall clock: lines of iterations, and of named timers."""

from __future__ import annotations

import re
from functools import lru_cache

from ringwright.formats.sources.kinds import NO, WORDS, document

WHAT = "training log of Megatron-LM or torchtitan"
RANK = 118
READER = "ringwright.formats.sources.megatron_log:read_megatron_log"
WITHIN = ("nccl-log", "deepspeed-comms")  # a job's log holds other lines as well
_LINES = re.compile(
    rb"iteration[= ] *\d+/ *\d+ \|[^\n]{0,600}elapsed[ _]time[ _]per[ _]iteration|times? across ranks \(ms\):|"
    rb"\bstep: +\d+ [^\n]{0,200}\b[tw]ps: +[\d,]+|"
    rb"\btime \(ms\)(?: \| [\w/.-]+: \d|:\r?\n +[\w/.-]+ \.{2,}: )"
)
_ARGUMENTS = re.compile(rb"using world size: \d+, data-parallel")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    # a log's first line may begin with [ as a list does
    return WORDS if not document(head).startswith(b"{") and _LINES.search(head) else NO


@lru_cache(maxsize=2)
def lies_in(head: bytes) -> bool:
    """Whether there are such lines among others, or will be: a log of many ranks may begin with more than is looked at."""
    return bool(_LINES.search(head) or _ARGUMENTS.search(head))
