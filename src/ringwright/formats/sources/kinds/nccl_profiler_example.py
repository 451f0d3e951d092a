"""Trace files of the example among NCCL's own profiler plug-ins: events of NCCL's kinds that begin and end, in capitals."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import KEYS, NO, of_others

WHAT = "trace of NCCL's example profiler plug-in"
RANK = 48  # before Kineto, whose traces have events too
READER = "ringwright.formats.sources.profiler_example:read_profiler_example"
_KINDS = rb"GROUP|GROUP_API|COLL|COLL_API|P2P|P2P_API|KERNEL_LAUNCH|PROXY|NET|GPU|CE_COLL"
_EVENT = re.compile(rb'"cat"\s*:\s*"(?:' + _KINDS + rb')"[^{}]{0,200}?"ph"\s*:\s*"b"')


def looks_like(head: bytes, _name: str) -> int:
    """Return how sure we are."""
    return KEYS if _EVENT.search(of_others(head)) else NO
