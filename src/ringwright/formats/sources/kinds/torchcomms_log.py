"""Logs of torchcomms' ClogHook begin with their version and the clock that times count from."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import MAGIC, NO

WHAT = "torchcomms log of collectives (ClogHook)"
RANK = 17
SUREST = MAGIC
READER = "ringwright.formats.sources.torchcomms_log:read_torchcomms_log"
_BEGINS = re.compile(rb"V\|\d{1,3}\|base_timestamp=\d")


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return MAGIC if _BEGINS.match(head) else NO
