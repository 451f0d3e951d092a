"""Spellings of operations in profiler traces and kernel names, to the project's own."""

from __future__ import annotations

import re

NO_OPERATION = (
    "wait",
    "init",
    "end_coalescing",
    "start_coalescing",
    "end_time_estimate",
    "start_time_estimate",
    "coalesced",
)
# the longest spelling that fits decides; what stands between is left out first
_OPERATIONS = (
    ("reducescatter", "reduce-scatter"),
    ("allreduce", "all-reduce"),
    ("allgather", "all-gather"),
    ("fcollect", "all-gather"),
    ("alltoall", "all-to-all"),
    ("all2all", "all-to-all"),
    ("a2a", "all-to-all"),
    ("sendrecv", "send-recv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("syncall", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("receive", "recv"),
    ("recv", "recv"),
    ("send", "send"),
)


def operation(said: object) -> str | None:
    """Return our name of an operation, or None: ``_allgather_base``, ``nccl:all_reduce``, ``AllReduce``, ``all_to_allv``.

    >>> operation("c10d::_reduce_scatter_base_"), operation("wait"), operation("nccl:recv 3<-1")
    ('reduce-scatter', None, 'recv')
    """
    if not isinstance(said, str) or len(said) > 200:
        return None
    short = said.split(":")[-1].strip().split(" ", 1)[0].lower()
    if short.strip("_") in NO_OPERATION:
        return None
    letters = re.sub(r"[^a-z0-9]", "", short)
    return next((op for spelling, op in _OPERATIONS if spelling in letters), None)
