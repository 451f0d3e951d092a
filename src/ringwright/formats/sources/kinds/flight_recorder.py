"""Flight Recorder dumps are pickles, or JSON with the state of process groups."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import KEYS, MAGIC, NO, has, of_others

WHAT = "PyTorch Flight Recorder dump"
RANK = 60
SUREST = MAGIC
READER = "ringwright.formats.sources.flight_recorder:read_flight_recorder"
PARSER = "ringwright.formats.sources.flight_recorder.columns:read_columns"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    if _PICKLE.match(head):
        return MAGIC
    text = of_others(head)
    is_dump = has(text, "pg_config", "entries") or has(text, "pg_status")
    return KEYS if is_dump or has(text, "collective_seq_id") or has(text, "profiling_name") else NO
