"""Tables of collectives that TraceLens writes as CSV: one row a call, a collective, or a kind of collective."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import KEYS, NO

WHAT = "TraceLens table of collectives"
RANK = 28
SUREST = KEYS
READER = "ringwright.formats.sources.tracelens:read_tracelens"
_TIMES = re.compile(
    rb",(?:dur|dur_sum|rank_\d{1,8}_dur|comm_latency|comm_latency_mean|wall_time \(us\)(?:_mean)?)[,\r\n]"
)


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    first = head[: head.find(b"\n") + 1] or head
    is_of_ranks = b"total_wait_time_us," in first and b"times_arrived_last" in first
    return KEYS if is_of_ranks or (b"Collective name," in first and _TIMES.search(first)) else NO
