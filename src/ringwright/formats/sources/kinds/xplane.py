"""XSpace files of XLA's profiler (JAX, TensorFlow): one message whose first field is a plane with a known name."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import KEYS, MAGIC, NO

WHAT = "XLA profiler trace (xplane)"
RANK = 15
SUREST = MAGIC
READER = "ringwright.formats.sources.xplane:read_xplane"
_NAMES = rb"/host:|/device:|Task Environment|/custom:|#"
_BEGINS = re.compile(
    rb"\x0a[\x80-\xff]{0,5}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12[\x01-\x7f](?:" + _NAMES + rb")"
)


def looks_like(head: bytes, name: str) -> int:
    """Return how sure we are."""
    if _BEGINS.match(head):
        return MAGIC
    return KEYS if name.endswith((".xplane.pb", ".xplane.pb.gz")) and head[:1] == b"\x0a" else NO
