"""PARAM's communication traces list communications with their sizes, groups or markers."""

from __future__ import annotations

from ringwright.formats.sources.kinds import KEYS, NO, has, of_others

WHAT = "PARAM communication trace"
RANK = 100
READER = "ringwright.formats.sources.param_comms:read_param_comms"
_BESIDE = ("markers", "in_msg_size", "startTime_ns", "pg_id")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    text = of_others(head)
    is_list = has(text, "comms") and any(has(text, key) for key in _BESIDE)
    return KEYS if is_list or has(text, "commsTrace") else NO
